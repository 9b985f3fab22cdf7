"""The ten questions: answered for every GPU, with the texts' own numbers among them."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

import lowgemm.cli.ask  # noqa: F401  # registers the command
from lowgemm.cli.common import app
from lowgemm.errors import ArgumentValueError
from lowgemm.hardware import GPUS, gpu_record
from lowgemm.studies.counters import ladder_counters
from lowgemm.studies.questions import QUESTIONS, Answer, answer
from lowgemm.studies.questions.answer import Subject
from lowgemm.view.questions import questions_page

H200 = Subject(gpu_record("h200"))


@pytest.fixture(scope="module")
def answers() -> dict[int, Answer]:
    """All answers for one GPU."""
    return {number: answer(number, H200.gpu, H200) for number in QUESTIONS}


def text(item: Answer) -> str:
    """Everything that an answer says."""
    cells = (cell for table in item.tables for row in table.rows for cell in row)
    return "\n".join((*item.paragraphs, *cells, item.picture))


def test_there_are_ten(answers: dict[int, Answer]) -> None:
    """Each has a question, an answer with a number in it, and the source of its table."""
    assert list(answers) == list(range(1, 11))
    for item in answers.values():
        assert item.question.endswith("?")
        assert re.search(r"\d", text(item))
        assert item.tables or item.picture
        assert all(table.source for table in item.tables)
        assert all(len(row) == len(t.headers) for t in item.tables for row in t.rows)


def test_intensity_goes_from_a_quarter_to_thirty_two(answers: dict[int, Answer]) -> None:
    """0.25 FLOP/byte without a tile, 32 with 128 x 128."""
    rows = {row[0]: row for row in answers[1].tables[0].rows}
    assert rows["1 x 1"][1:3] == ("ex3", "0.25")
    assert rows["128 x 128"][2] == "32"


def test_the_hand_formula_stands_beside_the_compilers_registers(
    answers: dict[int, Answer],
) -> None:
    """80 by hand for 8 x 8 of ex8, and what the compiler used."""
    rows = {row[0]: row for row in answers[9].tables[0].rows}
    used = H200.report("ex8").registers
    assert rows["ex8"][1:4] == ("8 x 8", "80", str(used))
    assert "3 blocks, 37.5 %" in text(answers[9])


def test_the_timeline_is_the_loop_that_there_is(answers: dict[int, Answer]) -> None:
    """Its counts are those of the hot loop, and the loads stand before the stores."""
    hot = H200.report("ex9").hot
    assert hot is not None
    lines = {line.split()[0]: line for line in answers[5].picture.splitlines()}
    for name in ("LDG", "LDS", "FFMA", "STS", "BAR"):
        there = sum(n for mnemonic, n in hot.mix.items() if mnemonic.partition(".")[0] == name)
        assert lines[name].endswith(f"| {there}")
    first = {name: re.search(r"[▁-█]", line) for name, line in lines.items()}
    assert first["LDG"] and first["STS"]
    assert first["LDG"].start() < first["STS"].start()


def test_every_stall_reason_is_measured_somewhere(answers: dict[int, Answer]) -> None:
    """The table names the rung with the most, from the committed counters."""
    rows = {row[0]: row for row in answers[6].tables[0].rows}
    counters = ladder_counters()
    worst = max(counters.rungs, key=lambda rung: counters.stall(rung, "long_scoreboard") or 0)
    assert rows["long scoreboard"][2].startswith(worst)
    assert counters.gpu in answers[6].tables[0].source


def test_bank_conflicts_have_their_textbook_numbers(answers: dict[int, Answer]) -> None:
    """32 passes for a column of a plain tile; one when padded or swizzled."""
    rows = {row[0]: row for row in answers[7].tables[0].rows}
    assert rows["plain, pitch 32"][1:3] == ("32", "1")
    assert rows["padded, pitch 33"][1:3] == ("1", "1")
    assert rows["transposed"][1:3] == ("1", "32")
    assert rows["swizzled, k xor row"][1:3] == ("1", "1")


def test_z_order_halves_what_b_costs(answers: dict[int, Answer]) -> None:
    """4 + 4 wavefronts instead of 4 + 8, the multiply-adds taking 16 cycles."""
    rows = {row[0]: row for row in answers[8].tables[0].rows}
    assert rows["4 x 8"][3] == "4 + 8"
    assert rows['4 x 8, lanes in "z" order'][3] == "4 + 4"


@pytest.mark.parametrize("gpu", [gpu.name for gpu in GPUS])
@pytest.mark.parametrize("number", [1, 4, 7, 8])
def test_the_model_answers_for_every_gpu(number: int, gpu: str) -> None:
    """The answers that need no machine code are there for each GPU of the table."""
    found = answer(number, gpu_record(gpu))
    assert found.gpu == gpu
    assert found.tables


@pytest.mark.parametrize("gpu", ["v100", "a100", "rtx 5080"])
def test_machine_code_answers_for_other_chips(gpu: str) -> None:
    """64 lanes, 128 lanes, and a chip that the compiler no longer has a target for."""
    subject = Subject(gpu_record(gpu))
    for number in (5, 9):
        assert text(answer(number, subject.gpu, subject))


def test_no_verdict_from_an_unknown_latency() -> None:
    """Question 5 says hidden or not where DRAM's latency is known, and neither where it is not."""
    unknown = text(answer(5, gpu_record("rtx 5080")))
    assert "is not known" in unknown
    assert "hidden" not in unknown
    assert "hidden" in text(answer(5, gpu_record("a100")))


@pytest.mark.parametrize("number", [0, 11, -1])
def test_there_is_no_eleventh(number: int) -> None:
    """Another number is an error that says which there are."""
    with pytest.raises(ArgumentValueError, match="1 to 10"):
        answer(number, H200.gpu)


def test_the_command_answers_as_text_and_json() -> None:
    """One question, or several."""
    shown = CliRunner().invoke(app, ["ask", "1", "--gpu", "a100"])
    assert shown.exit_code == 0
    assert "13.4 bytes a cycle" in shown.output
    rows = json.loads(CliRunner().invoke(app, ["ask", "7", "8", "--json"]).output)
    assert [row["number"] for row in rows] == [7, 8]


def test_the_page_holds_all_of_them(answers: dict[int, Answer]) -> None:
    """A heading each."""
    page = questions_page(list(answers.values()), "13.5")
    assert page.count("\n## ") == 10
