package wasmkit

import (
	"encoding/binary"
	"math"
	"strings"
)

// Options describe a module.
type Options struct {
	Filter bool     // it exports grapevine_v1_filter, not grapevine_v1_score
	Facts  []string // that it reads
	Body   []byte   // instructions of that function; its last value is the result
	Start  []byte   // of grapevine_v1_start; nil: the module takes no config
	Pages  uint32   // of memory at the start; 0 means 16
	Heap   int32    // address of the first area that it returns; 0 means a good one
	Import string   // MODULE.NAME of an imported function without parameters
	Text   string   // at TextAt, with a zero byte after it
}

// Places in the memory of modules.
const (
	factsAt = 64
	TextAt  = 16 << 10 // of Options.Text
	heapAt  = 32 << 10
)

// Copy is a body that returns the first fact of each of the endpoints, which have n facts, as its
// score or, if it is above 0.5, keeps it.
func Copy(filter bool, n int) []byte {
	body := []byte{
		0x02, 0x40, 0x03, 0x40, // block, loop
		0x20, 4, 0x20, 2, 0x4f, 0x0d, 1, // exit if k >= n
	}
	if filter {
		body = append(body, 0x20, 3, 0x20, 4, 0x6a) // keep + k
	} else {
		body = append(body, 0x20, 3, 0x20, 4, 0x41, 3, 0x74, 0x6a) // scores + k·8
	}
	body = append(append(body, 0x20, 1, 0x20, 4), Int(int32(8*n))...)
	body = append(body, 0x6c, 0x6a, 0x2b, 3, 0) // load endpoints + k·8·n
	if filter {
		body = append(append(body, Float(.5)...), 0x64, 0x3a, 0, 0) // > 0.5, store 8 bits
	} else {
		body = append(body, 0x39, 3, 0) // store
	}
	return append(body, 0x20, 4, 0x41, 1, 0x6a, 0x21, 4, 0x0c, 0, 0x0b, 0x0b, 0x41, 0) // k++, again; return 0
}

// Scores is a body that gives scores to the first endpoints.
func Scores(scores ...float64) []byte {
	var body []byte
	for k, score := range scores {
		body = append(append(body, 0x20, 3), Float(score)...)
		body = appendU32(append(body, 0x39, 3), uint32(8*k))
	}
	return append(body, 0x41, 0)
}

// Bodies with one fault.
var (
	Spin    = []byte{0x03, 0x40, 0x0c, 0, 0x0b, 0x41, 0}                 // a loop without end
	Recurse = []byte{0x20, 0, 0x20, 1, 0x20, 2, 0x20, 3, 0x10, selfCall} // calls itself for ever
	Fork    = append(append([]byte{}, Recurse...), append([]byte{0x1a}, Recurse...)...)
	Trap    = []byte{0x00}                                                                                      // unreachable
	Outside = []byte{0x41, 0x7f, 0x28, 2, 0}                                                                    // reads at 4 GiB
	Grow    = []byte{0x03, 0x40, 0x41, 1, 0x40, 0, 0x1a, 0x0c, 0, 0x0b, 0x41, 0}                                // grows memory for ever
	Fill    = []byte{0x03, 0x40, 0x41, 0, 0x41, 0, 0x41, 0x80, 0x80, 0x3c, 0xfc, 11, 0, 0x0c, 0, 0x0b, 0x41, 0} // fills 960 KiB for ever
	Nothing = []byte{0x41, 0}                                                                                   // writes no result
	Refuse  = []byte{0x41, 7}                                                                                   // returns 7
)

// selfCall is the index of the function with the body, if nothing is imported.
const selfCall = 2

// Int is an instruction for a number.
func Int(n int32) []byte { return appendS32([]byte{0x41}, n) }

// Float is an instruction for a number.
func Float(f float64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{0x44}, math.Float64bits(f))
}

// Module returns the bytes of a module.
func Module(o Options) []byte {
	if o.Pages == 0 {
		o.Pages = 16
	}
	if o.Heap == 0 {
		o.Heap = heapAt
	}
	imports := uint32(0)
	out := []byte("\x00asm\x01\x00\x00\x00")
	add := func(id byte, body []byte) { out = append(appendU32(append(out, id), uint32(len(body))), body...) }
	add(1, []byte{
		5,
		0x60, 1, 0x7f, 1, 0x7f, // alloc
		0x60, 0, 1, 0x7f, // facts
		0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f, // score, filter
		0x60, 2, 0x7f, 0x7f, 1, 0x7f, // start
		0x60, 0, 0, // import
	})
	if module, name, ok := strings.Cut(o.Import, "."); ok {
		imports = 1
		add(2, append(appendName(appendName([]byte{1}, module), name), 0, 4))
	}
	add(3, []byte{4, 0, 1, 2, 3})
	add(5, appendU32([]byte{1, 0}, o.Pages))
	add(6, append(append([]byte{1, 0x7f, 1}, Int(o.Heap)...), 0x0b))
	exports := []string{"grapevine_v1_alloc", "grapevine_v1_facts", "grapevine_v1_score"}
	if o.Filter {
		exports[2] = "grapevine_v1_filter"
	}
	if o.Start != nil {
		exports = append(exports, "grapevine_v1_start")
	}
	body := appendU32(nil, uint32(len(exports)+1))
	for i, name := range exports {
		body = appendU32(append(appendName(body, name), 0), imports+uint32(i))
	}
	add(7, append(appendName(body, "memory"), 2, 0))
	start := o.Start
	if start == nil {
		start = []byte{0x41, 0}
	}
	code := []byte{4}
	for _, f := range []struct {
		locals, body []byte
	}{
		{[]byte{0}, []byte{0x23, 0, 0x23, 0, 0x20, 0, 0x41, 7, 0x6a, 0x41, 0x78, 0x71, 0x6a, 0x24, 0}}, // returns the heap's end, and moves it
		{[]byte{0}, Int(factsAt)},
		{[]byte{1, 1, 0x7f}, o.Body},
		{[]byte{0}, start},
	} {
		function := append(append(append([]byte{}, f.locals...), f.body...), 0x0b)
		code = append(appendU32(code, uint32(len(function))), function...)
	}
	add(10, code)
	data := appendU32(nil, 2)
	for _, d := range []struct {
		at   int32
		text string
	}{{factsAt, strings.Join(o.Facts, "\n")}, {TextAt, o.Text}} {
		data = append(append(append(data, 0), Int(d.at)...), 0x0b)
		data = appendName(data, d.text+"\x00")
	}
	add(11, data)
	return out
}

func appendName(out []byte, s string) []byte { return append(appendU32(out, uint32(len(s))), s...) }

func appendU32(out []byte, n uint32) []byte { return binary.AppendUvarint(out, uint64(n)) }

func appendS32(out []byte, n int32) []byte {
	for {
		b := byte(n) & 0x7f
		n >>= 7
		if n == 0 && b&0x40 == 0 || n == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}
