"""What an opcode is and what a control word says: one record each, used by everything after."""

from lowgemm.isa.control import ControlWord
from lowgemm.isa.opcode import Access, Form, Opcode, Operand, Pipe, Predicate, Space
from lowgemm.isa.opcodes import known_opcodes, lookup

__all__ = [
    "Access",
    "ControlWord",
    "Form",
    "Opcode",
    "Operand",
    "Pipe",
    "Predicate",
    "Space",
    "known_opcodes",
    "lookup",
]
