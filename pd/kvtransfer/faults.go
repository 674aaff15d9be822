package kvtransfer

import (
	"strconv"
	"strings"
)

// Fault says what became of a prefill leg that was asked in vain.
type Fault uint8

// Faults. Errors of the request itself are none.
const (
	NoFault Fault = iota
	Refused       // no connection
	Timeout       // no whole answer in time
	Broken        // the connection broke before the answer's end
	Failed        // a status of 500 and above
	Busy          // the engine has no room: 408, 429 or 503
	Garbage       // an answer that is none
	numFaults
)

var faultNames = [numFaults]string{"none", "refused", "timeout", "broken", "status_5xx", "busy", "garbage"}

// String returns the fault's name, as it is in headers and metrics.
func (f Fault) String() string {
	if f >= numFaults {
		return faultNames[NoFault]
	}
	return faultNames[f]
}

// maxTargets bounds the places that are believed.
const maxTargets = 64

// Leg is a prefill leg that was asked in vain: of the target at a place in the list that
// the request named.
type Leg struct {
	Target int
	Fault  Fault
}

// Faults are the prefill legs of one request that were asked in vain, in order, those
// with NoFault behind them.
type Faults [2]Leg

// Add notes one more, as long as there is room.
func (f *Faults) Add(target int, fault Fault) {
	for i := range f {
		if f[i].Fault == NoFault {
			f[i] = Leg{target, fault}
			return
		}
	}
}

// Text returns the header's value, "" where nothing went wrong.
func (f *Faults) Text() string {
	if f[0].Fault == NoFault {
		return ""
	}
	var b []byte
	for _, l := range f {
		if l.Fault == NoFault {
			break
		}
		if b != nil {
			b = append(b, ',')
		}
		b = append(append(strconv.AppendInt(b, int64(l.Target), 10), '='), l.Fault.String()...)
	}
	return string(b)
}

// ParseFaults reads a header's value. What it does not understand counts as nothing, and
// so does a second word about one target.
func ParseFaults(s string) (f Faults) {
	if s == "" || len(s) > 64 {
		return Faults{}
	}
	n := 0
	for part := range strings.SplitSeq(s, ",") {
		place, name, _ := strings.Cut(part, "=")
		target, err := strconv.Atoi(place)
		if err != nil || target < 0 || target >= maxTargets || n == len(f) || n > 0 && f[0].Target == target {
			return Faults{}
		}
		fault := faultNamed(name)
		if fault == NoFault {
			return Faults{}
		}
		f[n] = Leg{target, fault}
		n++
	}
	return f
}

func faultNamed(name string) Fault {
	for f := NoFault + 1; f < numFaults; f++ {
		if faultNames[f] == name {
			return f
		}
	}
	return NoFault
}
