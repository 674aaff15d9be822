package sweep

import (
	"bytes"
	"flag"
	"iter"
	"os"
	"reflect"
	"runtime/debug"
	"strconv"
	"testing"
)

// Limit is the number of changed inputs for each seed and argument.
type Limit int

const (
	// Default tries all changes of seeds of up to 64 bytes.
	Default Limit = 64 * (256 + cuts)
	// Slow is for targets that take more than 50 µs for an input.
	Slow Limit = 1000
	// quick is the part of the limit that unit tests try, one in so many changes.
	quick = 32
)

// Env is the environment variable that selects the complete sweep, by any value.
const Env = "GRAPEVINE_SWEEP"

// Fuzz is like f.Fuzz(check). Outside of fuzzing, it also calls check with limit changes of each []byte
// or string of each seed, and reports the first input that fails or panics.
func Fuzz(f *testing.F, limit Limit, check any) {
	f.Helper()
	if fuzzing() {
		f.Fuzz(check)
		return
	}
	switch {
	case raced: // races do not depend on one byte
		limit = 1
	case os.Getenv(Env) == "":
		limit /= quick
	}
	fn := reflect.ValueOf(check)
	f.Fuzz(reflect.MakeFunc(fn.Type(), func(seed []reflect.Value) []reflect.Value {
		t := seed[0].Interface().(*testing.T)
		for i, arg := range seed[1:] {
			text, ok := textOf(arg)
			if !ok {
				continue
			}
			for changed := range Changes(text, limit) {
				args := copyOf(seed)
				args[i+1] = reflect.ValueOf(changed).Convert(arg.Type())
				if try(t, fn, args); t.Failed() {
					return nil
				}
			}
		}
		return fn.Call(seed)
	}).Interface())
}

// fuzzing reports whether the program was started with -fuzz, or by the fuzzing engine.
func fuzzing() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		if v := flag.Lookup(name); v != nil && v.Value.String() != v.DefValue {
			return true
		}
	}
	return false
}

// textOf returns a copy of the bytes of an argument. It returns false for other types.
func textOf(arg reflect.Value) ([]byte, bool) {
	switch {
	case arg.Kind() == reflect.String:
		return []byte(arg.String()), true
	case arg.Type() == reflect.TypeFor[[]byte]():
		return bytes.Clone(arg.Bytes()), true
	}
	return nil, false
}

// copyOf copies arguments, so that no call sees the changes of an earlier one.
func copyOf(args []reflect.Value) []reflect.Value {
	out := make([]reflect.Value, len(args))
	for i, arg := range args {
		out[i] = arg
		if text, ok := textOf(arg); ok {
			out[i] = reflect.ValueOf(text).Convert(arg.Type())
		}
	}
	return out
}

// try calls a target. The arguments of a failure are logged as a corpus file has them.
func try(t *testing.T, fn reflect.Value, args []reflect.Value) {
	t.Helper()
	returned := false
	defer func() {
		t.Helper()
		p := recover()
		if p != nil {
			t.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		if !returned || t.Failed() {
			t.Logf("failing input:\n%s", corpusFile(args[1:]))
		}
	}()
	fn.Call(args)
	returned = true
}

// corpusFile formats arguments as a file of testdata/fuzz.
func corpusFile(args []reflect.Value) string {
	out := "go test fuzz v1\n"
	for _, arg := range args {
		value := "?"
		switch text, ok := textOf(arg); {
		case ok:
			value = strconv.Quote(string(text))
		case arg.CanInt():
			value = strconv.FormatInt(arg.Int(), 10)
		case arg.CanUint():
			value = strconv.FormatUint(arg.Uint(), 10)
		case arg.Kind() == reflect.Bool:
			value = strconv.FormatBool(arg.Bool())
		case arg.CanFloat():
			value = strconv.FormatFloat(arg.Float(), 'g', -1, 64)
		}
		out += arg.Type().String() + "(" + value + ")\n"
	}
	return out
}

// Seeds of up to small bytes get all values at all positions. Longer ones get the first and last
// edge bytes and spread positions between them, with selected values.
const (
	small  = 64
	edge   = 64
	spread = 384
)

// interesting are bytes that decoders of text, varints, protobuf and frames branch on, and all type bytes
// of msgpack.
var interesting = []byte("\x00\x01\x02\x04\x08\x10\x20\x40\x7f\x80\x81\x90\x91\x93\xa0\xa1\xbf" +
	"\xc0\xc1\xc2\xc3\xc4\xc5\xc6\xc7\xc8\xc9\xca\xcb\xcc\xcd\xce\xcf\xd0\xd1\xd2\xd3\xd4\xd5\xd6\xd7\xd8\xd9\xda\xdb\xdc\xdd\xde\xdf" +
	"\xe0\xf0\xfe\xff\t\n\r \"'\\/{}[]():,;.=&*<>-+%#019aefntuzEN")

// cuts are the changes of a position that are not another value: the seed ends there, lacks the
// byte, or has the byte twice.
const cuts = 3

// Changes returns limit changes of a seed, or all if these are fewer. Changes that are left out are
// spread over positions and values.
func Changes(seed []byte, limit Limit) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		at := positions(len(seed))
		each := cuts + 256
		if len(seed) > small {
			each = cuts + len(interesting) + turning
		}
		all := len(at) * each
		step := stride(all)
		for i, k := 0, 0; i < min(all, int(limit)); i, k = i+1, (k+step)%all {
			if !yield(change(seed, at[k/each], k/each, k%each)) {
				return
			}
		}
	}
}

// turning is the number of values at each position of a long seed that differ from position to
// position, so that 64 positions have all.
const turning = 4

// change returns the seed with its k-th change at a position, which is the n-th of all positions.
func change(seed []byte, at, n, k int) []byte {
	switch k {
	case 0:
		return bytes.Clone(seed[:at])
	case 1:
		return append(bytes.Clone(seed[:at]), seed[at+1:]...)
	case 2:
		return append(bytes.Clone(seed[:at+1]), seed[at:]...)
	}
	k -= cuts
	value := byte(k)
	if len(seed) > small {
		if k < len(interesting) {
			value = interesting[k]
		} else {
			value = byte(n*turning + k - len(interesting))
		}
	}
	changed := bytes.Clone(seed)
	changed[at] = value
	return changed
}

// positions returns the positions of a seed of n bytes that are changed, in order.
func positions(n int) []int {
	var list []int
	for i := range n {
		if n <= 2*edge+spread || i < edge || i >= n-edge {
			list = append(list, i)
		} else if between := n - 2*edge; len(list) < edge+spread && (i-edge)*spread/between >= len(list)-edge {
			list = append(list, i)
		}
	}
	return list
}

// stride returns a number near the golden section of n that has no common divisor with n. Its multiples
// modulo n visit every number below n once, and any first part of them is spread evenly.
func stride(n int) int {
	for s := max(n*618/1000, 1); ; s++ {
		a, b := s, n
		for b != 0 {
			a, b = b, a%b
		}
		if a == 1 {
			return s
		}
	}
}
