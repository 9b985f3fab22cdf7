"""Read a kernel's parameter types from its Itanium mangled name.

The C++ compiler of CUDA mangles as the Itanium C++ ABI says, for LP64: ``long`` has 8 bytes and
``char`` is signed (x86-64).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lowgemm.binary.signature import ParameterKind

__all__ = [
    "ANONYMOUS",
    "ParameterType",
    "base_name",
    "demangle",
    "display_names",
    "function_name",
    "parameter_types",
    "spellings",
]

#: A namespace without a name, as C++ compilers spell it.
ANONYMOUS = "(anonymous namespace)::"
# Its mangled name holds a number that depends on the file and on what else stands in it.
_ANONYMOUS = re.compile(r"\b_GLOBAL__N_\w*")

# Substitutions let a short name stand for a type of exponential size; no real kernel comes near.
_MAX_NODES = 5000
_MAX_NAME_CHARS = 8192

_SIGNED, _UNSIGNED = ParameterKind.SIGNED, ParameterKind.UNSIGNED
_FLOAT, _POINTER = ParameterKind.FLOAT, ParameterKind.POINTER

# C++ type: kind, bytes, numpy name.
_BUILTINS: dict[str, tuple[ParameterKind, int, str | None]] = {
    "bool": (_UNSIGNED, 1, "bool"),
    "char": (_SIGNED, 1, "int8"),
    "signed char": (_SIGNED, 1, "int8"),
    "unsigned char": (_UNSIGNED, 1, "uint8"),
    "short": (_SIGNED, 2, "int16"),
    "unsigned short": (_UNSIGNED, 2, "uint16"),
    "int": (_SIGNED, 4, "int32"),
    "unsigned int": (_UNSIGNED, 4, "uint32"),
    "long": (_SIGNED, 8, "int64"),
    "unsigned long": (_UNSIGNED, 8, "uint64"),
    "long long": (_SIGNED, 8, "int64"),
    "unsigned long long": (_UNSIGNED, 8, "uint64"),
    "__int128": (_SIGNED, 16, None),
    "unsigned __int128": (_UNSIGNED, 16, None),
    "wchar_t": (_SIGNED, 4, "int32"),
    "char8_t": (_UNSIGNED, 1, "uint8"),
    "char16_t": (_UNSIGNED, 2, "uint16"),
    "char32_t": (_UNSIGNED, 4, "uint32"),
    "float": (_FLOAT, 4, "float32"),
    "double": (_FLOAT, 8, "float64"),
    "half": (_FLOAT, 2, "float16"),
}
# Classes of CUDA's headers that stand for one number. Of these numpy itself knows float16; the
# others are the names that the package ml_dtypes registers.
_NUMBER_CLASSES = {
    "__half": "float16",
    "__nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
}


@dataclass(frozen=True, slots=True)
class ParameterType:
    """One parameter's type as the mangled name tells it.

    ``size_bytes`` is None for a class or an enumeration, which a name does not tell apart
    (``kind`` is then UNKNOWN). ``pointee`` is the numpy name of the element behind a pointer; for
    bfloat16 and the 8-bit floats the name that ``ml_dtypes`` registers; None for vector types
    such as ``float4``, for structs and for ``void``.
    """

    type_name: str
    kind: ParameterKind
    size_bytes: int | None = None
    pointee: str | None = None
    pointee_is_const: bool = False


def parameter_types(name: str) -> tuple[ParameterType, ...] | None:
    """Parameter types of a kernel, from its mangled name.

    Returns
    -------
    tuple or None
        None if the name is not mangled (``extern "C"``) or has a form that is not understood.
        Never raises.
    """
    try:
        function = _parse(name)
        if function is None or function.kind != "func":
            return None
        arguments = [a for t in function.arg_tys for a in _expand(t)]
        if len(arguments) == 1 and _builtin(arguments[0]) == "void":
            return ()
        return tuple(_describe(argument) for argument in arguments)
    except Exception:  # a name is text from outside; whatever the parser trips on, there are none
        return None


def demangle(name: str) -> str:
    """The C++ spelling of a mangled name; the name itself if it is not mangled or not understood.

    Examples
    --------
    >>> demangle("_Z3ex8ILb1EEvi")
    'void ex8<true>(int)'
    """
    try:
        node = _parse(name)
        return name if node is None else _signature_text(node, name)
    except Exception:  # as above
        return name


def function_name(name: str) -> str:
    """The function's name with namespaces and template arguments, without parameters.

    Examples
    --------
    >>> function_name("_Z3ex8ILb1EEvi")
    'ex8<true>'
    """
    try:
        node = _parse(name)
        return name if node is None else _text(node.name if node.kind == "func" else node)
    except Exception:  # as above
        return name


def base_name(name: str) -> str:
    """The function's name with its namespaces, without template arguments and parameters.

    Examples
    --------
    >>> base_name("_Z3ex8ILb1EEvi")
    'ex8'
    """
    try:
        node = _parse(name)
        if node is None:
            return name
        qualified = node.name if node.kind == "func" else node
        parts = qualified.value if qualified.kind == "qual_name" else (qualified,)
        return "::".join(_text(part) for part in parts if part.kind != "tpl_args") or name
    except Exception:  # as above
        return name


def display_names(names: Sequence[str], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Names for people by mangled name, all different: overloads have their parameters.

    Parameters
    ----------
    names
        The mangled names of all kernels that are shown together.
    given
        Names that some of them were asked for by.
    """
    shown = {name: (given or {}).get(name) or function_name(name) for name in names}
    for longer in (_with_parameters, str):
        counts = Counter(shown.values())
        shown |= {name: longer(name) for name, text in shown.items() if counts[text] > 1}
    return shown


def spellings(name: str) -> tuple[str, ...]:
    """The names by which people may mean a mangled one.

    Without and with parameters, and without anonymous namespaces, which nobody can name.

    Examples
    --------
    >>> spellings("_Z3ex8ILb1EEvi")
    ('ex8<true>', 'ex8<true>(int)', '_Z3ex8ILb1EEvi')
    """
    full = (function_name(name), _with_parameters(name), name)
    return tuple(dict.fromkeys([*full, *(text.replace(ANONYMOUS, "") for text in full)]))


def _with_parameters(name: str) -> str:
    try:
        node = _parse(name)
        return name if node is None else _signature_text(node, name, returns=False)
    except Exception:  # as above
        return name


# ---- the parser's nodes, which are named tuples of several untyped classes


@lru_cache(maxsize=1024)
def _parse(name: str) -> Any:
    if not name.startswith("_Z") or len(name) > _MAX_NAME_CHARS:
        return None
    import itanium_demangler

    node = itanium_demangler.parse(name)
    if node is None or _expanded_size(node, {}) > _MAX_NODES:
        return None
    return node


def _expanded_size(node: Any, known: dict[int, int]) -> int:
    """Nodes of the tree that printing would walk; shared subtrees count each time."""
    if not isinstance(node, tuple | frozenset):
        return 1
    if id(node) not in known:
        known[id(node)] = 1 + sum(_expanded_size(part, known) for part in node)
    return known[id(node)]


def _text(node: Any) -> str:
    text = re.sub(r"\(bool\)([01])", lambda m: ("false", "true")[int(m[1])], str(node))
    text = re.sub(r"\((?:unsigned )?(?:int|long|short|char)\)(?=n?\d)", "\0", text)
    text = re.sub("\0(n?)", lambda m: "-" if m[1] else "", text)
    return _ANONYMOUS.sub(ANONYMOUS.removesuffix("::"), text)


def _signature_text(node: Any, name: str, *, returns: bool = True) -> str:
    """A function as C++ spells it; packs are written out, which the parser's own text is not."""
    if node.kind != "func":
        return _text(node)
    arguments = [_text(a) for t in node.arg_tys for a in _expand(t)]
    text = f"{_text(node.name)}({', '.join(arguments if arguments != ['void'] else [])})"
    if returns and node.ret_ty is not None:
        text = f"{_text(node.ret_ty)} {text}"
    return name if "Node " in text else text


def _builtin(node: Any) -> str | None:
    return str(node.value) if node.kind == "builtin" else None


def _expand(node: Any) -> Iterator[Any]:
    """One parameter, or those that a pack (``T*... p``) stands for."""
    if node.kind != "expand_arg_pack":
        yield node
        return
    length = _pack_length(node.value)
    for index in range(length):
        yield _element(node.value, index)


def _pack_length(node: Any) -> int:
    if getattr(node, "kind", None) == "tpl_arg_pack":
        return len(node.value)
    inner = getattr(node, "value", None)
    if not hasattr(inner, "kind"):
        raise ValueError("no argument pack inside an expansion")
    return _pack_length(inner)


def _element(node: Any, index: int) -> Any:
    if node.kind == "tpl_arg_pack":
        return node.value[index]
    return node._replace(value=_element(node.value, index))


def _describe(node: Any) -> ParameterType:
    text = _text(node)
    if node.kind == "cv_qual":  # a const parameter is mangled without its const, a pack's is not
        node = node.value
    if node.kind in ("pointer", "lvalue", "rvalue"):
        target, is_const = node.value, False
        if target.kind == "cv_qual":
            is_const = "const" in target.qual
            target = target.value
        return ParameterType(text, _POINTER, 8, _element_name(target), is_const)
    builtin = _builtin(node)
    if builtin is not None:
        kind, size, _ = _BUILTINS[builtin]
        return ParameterType(text, kind, size)
    if text == "std::nullptr_t":
        return ParameterType(text, _POINTER, 8)
    if text == "__half":
        return ParameterType(text, _FLOAT, 2)
    return ParameterType(text, ParameterKind.UNKNOWN)


def _element_name(target: Any) -> str | None:
    builtin = _builtin(target)
    if builtin is not None:
        return _BUILTINS[builtin][2] if builtin in _BUILTINS else None
    if target.kind == "array":
        return _element_name(target.ty)
    return _NUMBER_CLASSES.get(str(target)) if target.kind == "name" else None
