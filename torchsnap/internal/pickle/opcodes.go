package pickle

// The opcodes, with the names of CPython's pickletools.
const (
	opMark           = '('
	opStop           = '.'
	opPop            = '0'
	opPopMark        = '1'
	opDup            = '2'
	opFloat          = 'F'
	opInt            = 'I'
	opBinInt         = 'J'
	opBinInt1        = 'K'
	opLong           = 'L'
	opBinInt2        = 'M'
	opNone           = 'N'
	opPersID         = 'P'
	opBinPersID      = 'Q'
	opReduce         = 'R'
	opString         = 'S'
	opBinString      = 'T'
	opShortBinString = 'U'
	opUnicode        = 'V'
	opBinUnicode     = 'X'
	opAppend         = 'a'
	opBuild          = 'b'
	opGlobal         = 'c'
	opDict           = 'd'
	opEmptyDict      = '}'
	opAppends        = 'e'
	opGet            = 'g'
	opBinGet         = 'h'
	opInst           = 'i'
	opLongBinGet     = 'j'
	opList           = 'l'
	opEmptyList      = ']'
	opObj            = 'o'
	opPut            = 'p'
	opBinPut         = 'q'
	opLongBinPut     = 'r'
	opSetItem        = 's'
	opTuple          = 't'
	opEmptyTuple     = ')'
	opSetItems       = 'u'
	opBinFloat       = 'G'
	opBinBytes       = 'B'
	opShortBinBytes  = 'C'

	opProto           = 0x80 // protocol 2
	opNewObj          = 0x81
	opExt1            = 0x82
	opExt2            = 0x83
	opExt4            = 0x84
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opNewTrue         = 0x88
	opNewFalse        = 0x89
	opLong1           = 0x8a
	opLong4           = 0x8b
	opShortBinUnicode = 0x8c // protocol 4
	opBinUnicode8     = 0x8d
	opBinBytes8       = 0x8e
	opEmptySet        = 0x8f
	opAddItems        = 0x90
	opFrozenSet       = 0x91
	opNewObjEx        = 0x92
	opStackGlobal     = 0x93
	opMemoize         = 0x94
	opFrame           = 0x95
	opByteArray8      = 0x96 // protocol 5
)

// fixedArgs is the number of argument bytes that each opcode has at least.
var fixedArgs = [256]uint8{
	opBinInt: 4, opBinInt1: 1, opBinInt2: 2, opBinString: 4, opShortBinString: 1, opBinUnicode: 4,
	opBinGet: 1, opLongBinGet: 4, opBinPut: 1, opLongBinPut: 4, opBinFloat: 8, opBinBytes: 4, opShortBinBytes: 1,
	opProto: 1, opExt1: 1, opExt2: 2, opExt4: 4, opLong1: 1, opLong4: 4,
	opShortBinUnicode: 1, opBinUnicode8: 8, opBinBytes8: 8, opFrame: 8, opByteArray8: 8,
}

// code names the opcodes that make Python run code or fetch foreign objects.
var code = map[byte]string{
	opGlobal: "GLOBAL", opStackGlobal: "STACK_GLOBAL", opReduce: "REDUCE", opBuild: "BUILD", opInst: "INST", opObj: "OBJ",
	opNewObj: "NEWOBJ", opNewObjEx: "NEWOBJ_EX", opExt1: "EXT1", opExt2: "EXT2", opExt4: "EXT4",
	opPersID: "PERSID", opBinPersID: "BINPERSID",
}
