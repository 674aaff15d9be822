package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Sections of a module, in the order of the file.
const (
	sectionCustom   = 0
	sectionType     = 1
	sectionImport   = 2
	sectionFunction = 3
	sectionTable    = 4
	sectionMemory   = 5
	sectionGlobal   = 6
	sectionExport   = 7
	sectionStart    = 8
	sectionElement  = 9
	sectionCode     = 10
	sectionData     = 11
	sectionCount    = 12 // of data segments
)

// Opcodes that the meter reads or writes.
const (
	opUnreachable  = 0x00
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBrTable      = 0x0e
	opCallIndirect = 0x11
	opSelectTyped  = 0x1c
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opMemoryGrow   = 0x40
	opI64Const     = 0x42
	opI64LtS       = 0x53
	opI64Sub       = 0x7d
	opI64Shl       = 0x86
	opI64ShrU      = 0x88
	opI64ExtendU   = 0xad
	opBulk         = 0xfc
	opVector       = 0xfd

	typeI32, typeI64 = 0x7f, 0x7e
	blockEmpty       = 0x40
)

// stepsExport is the name under which a metered module exports its step counter.
const stepsExport = "grapevine.steps"

// Limits on modules.
const (
	callSteps    = 64     // of a call, in addition to the callee's instructions and locals
	mostElements = 65_536 // initial size of a table
	mostLocals   = 10_000 // of a function
)

// metered is a module with a step counter.
type metered struct {
	code  []byte
	pages uint32 // initial size of its memory, in pages of 64 KiB
}

// meter adds a step counter to a module: a mutable global that starts at steps. The code is divided
// into segments, which begin at function entries, loops and ends of blocks. Each one subtracts its
// instructions at its start, and traps when the counter is negative. So the counter bounds the
// instructions that run, also in recursion. Bulk operations cost one step for 16 bytes.
func meter(module []byte, steps int64) (metered, error) {
	r := reader{data: module}
	if string(r.take(8)) != "\x00asm\x01\x00\x00\x00" {
		return metered{}, errors.New("it is not a WebAssembly module of version 1")
	}
	m := metering{steps: steps, out: metered{code: slices.Clone(module[:min(8, len(module))])}}
	for !r.done() {
		id := r.byte()
		body := r.take(int(r.u32()))
		if r.err != nil {
			break
		}
		if err := m.section(id, body); err != nil {
			return metered{}, err
		}
	}
	if r.err != nil {
		return metered{}, r.err
	}
	m.before(255)
	return m.out, nil
}

// metering rewrites one module.
type metering struct {
	steps    int64
	out      metered
	imported uint32 // globals
	global   uint32 // index of the step counter; the next one is a scratch value
	globals  bool   // the global section is written
	exports  bool
}

// before adds the sections that the module lacks and that precede section id.
func (m *metering) before(id byte) {
	if !m.globals && id > sectionGlobal {
		m.addGlobals(0, nil)
	}
	if !m.exports && id > sectionExport {
		m.addExport(0, nil)
	}
}

func (m *metering) section(id byte, body []byte) error {
	if id == sectionCustom {
		return nil // names and debugging data, which no message has
	}
	check := reader{data: body}
	if check.section(id); check.err != nil {
		return check.err
	}
	if id <= sectionElement { // the data count section, 12, precedes the code
		m.before(id)
	} else {
		m.before(255)
	}
	r := reader{data: body}
	switch id {
	case sectionImport:
		m.imported = r.globalImports()
		m.write(id, body)
	case sectionTable:
		if err := r.tables(); err != nil {
			return err
		}
		m.write(id, body)
	case sectionMemory:
		m.out.pages = r.memory()
		m.write(id, body)
	case sectionGlobal:
		m.addGlobals(r.u32(), r.rest())
	case sectionExport:
		m.addExport(r.u32(), r.rest())
	case sectionCode:
		code, err := m.functions(&r)
		if err != nil {
			return err
		}
		m.write(id, code)
	default:
		m.write(id, body)
	}
	return r.err
}

func (m *metering) write(id byte, body []byte) {
	m.out.code = append(appendU32(append(m.out.code, id), uint32(len(body))), body...)
}

func (m *metering) addGlobals(n uint32, rest []byte) {
	m.globals, m.global = true, m.imported+n
	body := append(appendU32(nil, n+2), rest...)
	body = appendS64(append(body, typeI64, 1, opI64Const), m.steps)
	body = append(body, opEnd, typeI32, 1, 0x41, 0, opEnd)
	m.write(sectionGlobal, body)
}

func (m *metering) addExport(n uint32, rest []byte) {
	m.exports = true
	body := append(appendU32(nil, n+1), rest...)
	body = append(appendU32(body, uint32(len(stepsExport))), stepsExport...)
	m.write(sectionExport, appendU32(append(body, 3), m.global))
}

// functions rewrites the code section.
func (m *metering) functions(r *reader) ([]byte, error) {
	n := r.u32()
	out := appendU32(make([]byte, 0, len(r.data)*2), n)
	var body []byte
	for range n {
		f := reader{data: r.take(int(r.u32()))}
		if r.err != nil {
			return nil, r.err
		}
		var err error
		if body, err = m.function(body[:0], &f); err != nil {
			return nil, err
		}
		out = append(appendU32(out, uint32(len(body))), body...)
	}
	r.end()
	return out, r.err
}

// longestSegment is the number of instructions after which a segment ends at the next end of a block.
const longestSegment = 64

// segments are the parts of a function. The charge at the start of one has the cost of all its
// instructions. Branches lead to the ends of blocks and to the starts of loops. So a segment has to
// begin at the start of a loop, and at the end of a block that has parts of two segments.
type segments struct {
	at    int    // position of the current segment's cost
	cost  uint64 // so far
	count int    // of segments
	open  []int  // count at the start of each open block
}

// function rewrites one function.
func (m *metering) function(out []byte, f *reader) ([]byte, error) {
	locals := uint64(0)
	for range f.u32() {
		locals += uint64(f.u32())
		f.byte()
		if f.err != nil || locals > mostLocals {
			return nil, cmp.Or(f.err, fmt.Errorf("a function has more than %d locals", mostLocals))
		}
	}
	out = append(out, f.data[:f.at]...)
	s := segments{cost: callSteps + locals, open: []int{0}}
	out, s.at = m.charge(out)
	for len(s.open) > 0 {
		if f.done() {
			return nil, errors.New("a function has no end")
		}
		from := f.at
		op := f.byte()
		sub := f.immediates(op)
		if f.err != nil {
			return nil, f.err
		}
		if op != opBlock && op != opLoop && op != opEnd {
			s.cost++ // the others only structure the code
		}
		if shift, ok := bulkCost(op, sub); ok {
			if op == opBulk && sub == bulkTableGrow {
				return nil, errors.New("it grows a table, which plugins may not")
			}
			out = m.chargeTop(out, shift)
		}
		out = append(out, f.data[from:f.at]...)
		if s.step(op) {
			putCost(out[s.at:], s.cost)
			out, s.at = m.charge(out)
			s.cost = 0
		}
	}
	putCost(out[s.at:], s.cost)
	if !f.done() {
		return nil, errors.New("a function goes on after its end")
	}
	return out, nil
}

// step follows an instruction. It reports whether a segment begins after it.
func (s *segments) step(op byte) bool {
	switch op {
	case opBlock, opIf:
		s.open = append(s.open, s.count)
		return false
	case opLoop:
		s.open = append(s.open, s.count)
	case opElse, opEnd:
		since := s.open[len(s.open)-1]
		if op == opEnd {
			s.open = s.open[:len(s.open)-1]
		}
		if len(s.open) == 0 || since == s.count && s.cost < longestSegment {
			return false
		}
	default:
		return false
	}
	s.count++
	return true
}

// charge appends a charge and returns the position of its cost, which putCost sets.
func (m *metering) charge(out []byte) ([]byte, int) {
	out = append(appendU32(append(out, opGlobalGet), m.global), opI64Const)
	at := len(out)
	out = append(out, 0x80, 0x80, 0x80, 0x80, 0)
	return m.settle(out), at
}

// settle appends the subtraction of the top value from the step counter below it, and the check.
func (m *metering) settle(out []byte) []byte {
	out = appendU32(append(out, opI64Sub, opGlobalSet), m.global)
	out = appendU32(append(out, opGlobalGet), m.global)
	return append(out, opI64Const, 0, opI64LtS, opIf, blockEmpty, opUnreachable, opEnd)
}

// chargeTop appends a charge by the top value, a 32-bit number, which it leaves there.
func (m *metering) chargeTop(out []byte, shift int8) []byte {
	scratch := m.global + 1
	out = appendU32(append(out, opGlobalSet), scratch)
	out = appendU32(append(out, opGlobalGet), m.global)
	out = append(appendU32(append(out, opGlobalGet), scratch), opI64ExtendU)
	if shift >= 0 {
		out = append(out, opI64Const, byte(shift), opI64Shl)
	} else {
		out = append(out, opI64Const, byte(-shift), opI64ShrU)
	}
	return appendU32(append(m.settle(out), opGlobalGet), scratch)
}

// Bulk operations, whose last operand is a size.
const (
	bulkMemoryInit = 8
	bulkMemoryCopy = 10
	bulkMemoryFill = 11
	bulkTableInit  = 12
	bulkTableCopy  = 14
	bulkTableGrow  = 15
	bulkTableFill  = 17
)

// bulkCost returns by how many bits the size of a bulk operation is shifted to get its steps.
func bulkCost(op byte, sub uint32) (shift int8, ok bool) {
	switch {
	case op == opMemoryGrow:
		return 17, true // the operating system needs that long for a page
	case op != opBulk:
		return 0, false
	case sub == bulkMemoryInit || sub == bulkMemoryCopy || sub == bulkMemoryFill:
		return -4, true
	case sub == bulkTableInit || sub == bulkTableCopy || sub == bulkTableGrow || sub == bulkTableFill:
		return -1, true
	}
	return 0, false
}

// putCost writes a cost as a signed number of five bytes, 2³³ at most.
func putCost(at []byte, cost uint64) {
	cost = min(cost, 1<<33)
	for i := range 5 {
		at[i] = byte(cost>>(7*i))&0x7f | 0x80
	}
	at[4] &= 0x7f
}
