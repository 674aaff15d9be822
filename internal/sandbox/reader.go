package sandbox

import (
	"errors"
	"fmt"
)

var errShort = errors.New("the module is cut off or damaged")

// reader reads the binary format of modules. After an error it returns zeros.
type reader struct {
	data []byte
	at   int
	err  error
}

func (r *reader) done() bool { return r.err != nil || r.at >= len(r.data) }

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.data)-r.at {
		r.fail(errShort)
		return nil
	}
	r.at += n
	return r.data[r.at-n : r.at]
}

func (r *reader) rest() []byte { return r.take(len(r.data) - r.at) }

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// u32 reads an unsigned number. Numbers of more than 32 bits are errors.
func (r *reader) u32() uint32 {
	var n uint64
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if n > 1<<32-1 {
				break
			}
			return uint32(n)
		}
	}
	r.fail(errShort)
	return 0
}

// number skips a number of any sign and of up to 64 bits.
func (r *reader) number() {
	for range 10 {
		if r.byte() < 0x80 {
			return
		}
	}
	r.fail(errShort)
}

// count reads the length of a list. Each item has at least one byte, so a longer list than the rest is
// damage, for which a compiler could reserve gigabytes.
func (r *reader) count() uint32 {
	n := r.u32()
	if r.err == nil && uint64(n) > uint64(len(r.data)-r.at) {
		r.fail(errShort)
	}
	if r.err != nil {
		return 0
	}
	return n
}

var errLong = errors.New("a section goes on after its end")

// section checks the lengths of all lists and texts of a section, and that it ends with its last item.
// Imports and code are checked where they are read.
func (r *reader) section(id byte) {
	switch id {
	case sectionImport, sectionCode:
		return
	case sectionStart, sectionCount:
		r.u32()
	default:
		r.items(id)
	}
	r.end()
}

// end fails unless everything has been read.
func (r *reader) end() {
	if !r.done() {
		r.fail(errLong)
	}
}

// items skips the list of a section.
func (r *reader) items(id byte) {
	for range r.count() {
		switch id {
		case sectionType:
			r.byte()
			r.take(int(r.count()))
			r.take(int(r.count()))
		case sectionFunction:
			r.u32()
		case sectionTable:
			r.byte()
			r.limits()
		case sectionMemory:
			r.limits()
		case sectionGlobal:
			r.take(2)
			r.constant()
		case sectionExport:
			r.take(int(r.count()))
			r.byte()
			r.u32()
		case sectionElement:
			r.element()
		case sectionData:
			if flags := r.u32(); flags != 1 {
				if flags == 2 {
					r.u32()
				}
				r.constant()
			}
			r.take(int(r.count()))
		default:
			r.fail(fmt.Errorf("it has a section of an unknown kind, %d", id))
		}
		if r.err != nil {
			return
		}
	}
}

// element skips a segment of elements.
func (r *reader) element() {
	flags := r.u32()
	if flags&1 == 0 { // it is written to a table at the start
		if flags&2 != 0 {
			r.u32()
		}
		r.constant()
	}
	if flags&3 != 0 {
		r.byte()
	}
	for range r.count() {
		if flags&4 == 0 {
			r.u32()
		} else {
			r.constant()
		}
		if r.err != nil {
			return
		}
	}
}

// constant skips a constant expression.
func (r *reader) constant() {
	for r.err == nil {
		op := r.byte()
		if r.immediates(op); op == opEnd {
			return
		}
	}
}

// globalImports returns the number of imported globals.
func (r *reader) globalImports() (n uint32) {
	for range r.count() {
		r.take(int(r.u32()))
		r.take(int(r.u32()))
		switch kind := r.byte(); kind {
		case 0:
			r.u32()
		case 1:
			r.byte()
			r.limits()
		case 2:
			r.limits()
		case 3:
			r.take(2)
			n++
		default:
			r.fail(fmt.Errorf("it has an import of an unknown kind, %d", kind))
		}
		if r.err != nil {
			return n
		}
	}
	r.end()
	return n
}

// limits returns the minimum of limits.
func (r *reader) limits() (least uint32) {
	flags := r.byte()
	least = r.u32()
	if flags&1 != 0 {
		r.u32()
	}
	return least
}

// tables refuses large tables.
func (r *reader) tables() error {
	for range r.count() {
		r.byte()
		if n := r.limits(); n > mostElements {
			return fmt.Errorf("it has a table of %d elements, the limit is %d", n, mostElements)
		}
		if r.err != nil {
			break
		}
	}
	return r.err
}

// memory returns the initial pages of the module's memory.
func (r *reader) memory() (pages uint32) {
	if r.u32() > 0 {
		pages = r.limits()
	}
	return pages
}

// immediates skips the immediate operands of an instruction. It returns the number of an instruction
// that has a prefix.
func (r *reader) immediates(op byte) (sub uint32) {
	switch {
	case op <= 0x01, op == opElse, op == opEnd, op == 0x0f, op == 0x1a, op == 0x1b, op >= 0x45 && op <= 0xc4, op == 0xd1:
	case op >= opBlock && op <= opIf: // a type, or the index of one
		r.number()
	case op == 0x0c, op == 0x0d, op == 0x10, op >= 0x20 && op <= 0x26, op == 0xd2:
		r.u32()
	case op == opBrTable:
		for range r.count() {
			if r.u32(); r.err != nil {
				return 0
			}
		}
		r.u32()
	case op == opCallIndirect:
		r.u32()
		r.u32()
	case op == opSelectTyped:
		r.take(int(r.u32()))
	case op >= 0x28 && op <= 0x3e:
		r.address()
	case op == 0x3f, op == opMemoryGrow, op == 0xd0:
		r.byte()
	case op == 0x41, op == opI64Const:
		r.number()
	case op == 0x43:
		r.take(4)
	case op == 0x44:
		r.take(8)
	case op == opBulk:
		sub = r.u32()
		r.bulk(sub)
	case op == opVector:
		sub = r.u32()
		r.vector(sub)
	default:
		r.fail(fmt.Errorf("it has an instruction that plugins may not use, 0x%02x", op))
	}
	return sub
}

// address skips the alignment and the offset of a memory access.
func (r *reader) address() {
	r.u32()
	r.u32()
}

func (r *reader) bulk(sub uint32) {
	switch sub {
	case 0, 1, 2, 3, 4, 5, 6, 7:
	case 9, bulkMemoryFill, 13, bulkTableGrow, 16, bulkTableFill:
		r.u32()
	case bulkMemoryInit, bulkMemoryCopy, bulkTableInit, bulkTableCopy:
		r.u32()
		r.u32()
	default:
		r.fail(fmt.Errorf("it has an instruction that plugins may not use, 0xfc %d", sub))
	}
}

func (r *reader) vector(sub uint32) {
	switch {
	case sub <= 11, sub == 92, sub == 93:
		r.address()
	case sub == 12, sub == 13:
		r.take(16)
	case sub >= 21 && sub <= 34:
		r.byte()
	case sub >= 84 && sub <= 91:
		r.address()
		r.byte()
	case sub > 255:
		r.fail(fmt.Errorf("it has an instruction that plugins may not use, 0xfd %d", sub))
	}
}

func appendU32(out []byte, n uint32) []byte {
	for ; n >= 0x80; n >>= 7 {
		out = append(out, byte(n)|0x80)
	}
	return append(out, byte(n))
}

func appendS64(out []byte, n int64) []byte {
	for {
		b := byte(n) & 0x7f
		n >>= 7
		if n == 0 && b&0x40 == 0 || n == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}
