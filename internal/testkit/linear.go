package testkit

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Linear fails tb if eight times the input takes more than 24 times the CPU time. Quadratic work
// would take 64 times; linear work takes eight, or somewhat more if the small input fits into a
// cache. of returns a function that reads an input of about n bytes.
//
// Only this process's CPU time counts, and one good try is enough, so that other load does not
// matter. Under the race detector, inputs are read but times are not compared.
func Linear(tb testing.TB, name string, of func(n int) (read func())) {
	tb.Helper()
	if Steps(tb, name, of) {
		return
	}
	const (
		enough = 2 * time.Millisecond // to be compared
		most   = 1 << 20
		floor  = 200 * time.Microsecond // minimum time to compare with
		tries  = 32
		times  = 8
	)
	n := 32 << 10
	if Raced {
		of(n)()
		return
	}
	small := processor(of(n))
	for small < enough && n < most {
		n *= 2
		small = processor(of(n))
	}
	once, again := of(n), of(times*n)
	for range tries {
		large := processor(again)
		if large <= 3*times*max(small, floor) {
			return
		}
		if small = processor(once); large <= 3*times*max(small, floor) {
			return
		}
	}
	tb.Errorf("%s: %d times as many bytes as %d take more than %d times the processor time, %d times in a row (the last: more than %v)", name, times, n, 3*times, tries, small)
}

// Variables that internal/testkit/steps sets to make a test read one input once: its name, its
// approximate size in bytes, and whether only to create it. With an empty name, the names of all
// inputs are printed.
const (
	StepsOf    = "GRAPEVINE_STEPS_OF"
	StepsBytes = "GRAPEVINE_STEPS_BYTES"
	StepsMade  = "GRAPEVINE_STEPS_MADE"
	StepsLine  = "input of steps: " // before each name
)

// Steps reports whether steps are counted instead of times. If so, it reads the input if it is the
// selected one.
func Steps(tb testing.TB, name string, of func(n int) (read func())) bool {
	only, counted := os.LookupEnv(StepsOf)
	if !counted {
		return false
	}
	if only == "" {
		fmt.Println(StepsLine + tb.Name() + ": " + name)
	}
	if only == tb.Name()+": "+name {
		n, err := strconv.Atoi(os.Getenv(StepsBytes))
		if err != nil {
			tb.Fatal(err)
		}
		if read := of(n); os.Getenv(StepsMade) == "" {
			read()
		}
	}
	return true
}

// processor returns the processor time that f takes.
func processor(f func()) time.Duration {
	used := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	begun := used()
	f()
	return used() - begun
}

// HardJSON returns JSON objects of about n bytes, and invalid texts, that are hard to parse in
// linear time. Each repeats one construct.
var HardJSON = map[string]func(n int) []byte{
	"backslashes":             repeated(`{"x":"`, `\\`, `"}`),
	"escaped quotes":          repeated(`{"x":"`, `\"`, `"}`),
	"escaped runes":           repeated(`{"x":"`, `\ud83d\ude00`, `"}`),
	"lone surrogates":         repeated(`{"x":"`, `\ud800`, `"}`),
	"backslashes in a name":   repeated(`{"`, `\\`, `":0}`),
	"backslashes in content":  repeated(`{"model":"m","messages":[{"role":"user","content":"`, `\\`, `"}]}`),
	"escapes in content":      repeated(`{"model":"m","messages":[{"role":"user","content":"`, `a\n`, `"}]}`),
	"strings with escapes":    repeated(`{"messages":[`, `"\n",`, `0]}`),
	"equal names":             repeated(`{`, `"a":0,`, `"z":0}`),
	"models":                  repeated(`{`, `"model":"m",`, `"z":0}`),
	"KV transfer":             repeated(`{`, `"kv_transfer_params":{},`, `"z":0}`),
	"equal names inside":      repeated(`{"chat_template_kwargs":{`, `"a":0,`, `"z":0}}`),
	"empty objects":           repeated(`{"documents":[`, `{},`, `{}]}`),
	"messages":                repeated(`{"messages":[`, `{"role":"user","content":"a"},`, `{}]}`),
	"numbers":                 repeated(`{"prompt":[`, `1,`, `1]}`),
	"lists that break":        repeated(`{"prompt":[`, `[1,1,"a"],`, `[1]]}`),
	"digits":                  repeated(`{"max_tokens":`, `1`, `}`),
	"white space":             repeated(`{"x":`, " \n", `0}`),
	"a string without end":    repeated(`{"x":"`, `a`, ``),
	"backslashes without end": repeated(`{"x":"`, `\\`, ``),
	"quotes":                  repeated(`{"x":`, `"`, `}`),
	"brackets":                repeated(`{"x":`, `[`, ``),
	"shallow nests":           repeated(`{"x":[`, `[[[[]]]],`, `0]}`),
	"different names": func(n int) []byte {
		b := []byte("{")
		for i := 0; len(b) < n; i++ {
			b = append(b, `"k`...)
			for k := i; k > 0; k /= 26 {
				b = append(b, 'a'+byte(k%26))
			}
			b = append(b, `":0,`...)
		}
		return append(b, `"z":0}`...)
	},
}

// repeated returns a function that generates texts from a head, a repeated unit and a tail.
func repeated(head, unit, tail string) func(n int) []byte {
	return func(n int) []byte {
		return bytes.Join([][]byte{[]byte(head), []byte(strings.Repeat(unit, n/len(unit))), []byte(tail)}, nil)
	}
}

// Repeated is an input of about n bytes of a head, a unit over and over, and a tail.
func Repeated(n int, head, unit, tail string) []byte { return repeated(head, unit, tail)(n) }
