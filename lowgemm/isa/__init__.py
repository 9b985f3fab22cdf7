"""What an opcode is and what a control word says: one record each, used by everything after."""

from lowgemm.isa.control import ControlWord
from lowgemm.isa.opcodes import Access, Form, Opcode, Pipe, Space, lookup

__all__ = ["Access", "ControlWord", "Form", "Opcode", "Pipe", "Space", "lookup"]
