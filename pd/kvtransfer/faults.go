package kvtransfer

import (
	"strconv"
	"strings"
)

// Fault is why a prefill attempt failed.
type Fault uint8

// Faults. Errors of the request itself are not faults.
const (
	NoFault Fault = iota
	Refused       // no connection
	Timeout       // no complete response in time
	Broken        // the connection broke before the end of the response
	Failed        // a status of 500 or above
	Busy          // the engine has no capacity: 408, 429 or 503
	Garbage       // an invalid response
	Died          // the engine died while it had the prompt
	numFaults
)

var faultNames = [numFaults]string{"none", "refused", "timeout", "broken", "status_5xx", "busy", "garbage", "died"}

// String returns the fault's name for headers and metrics.
func (f Fault) String() string {
	if f >= numFaults {
		return faultNames[NoFault]
	}
	return faultNames[f]
}

// maxTargets is the largest accepted index.
const maxTargets = 64

// Leg is a failed prefill attempt at a target, identified by its index in the request's list.
type Leg struct {
	Target int
	Fault  Fault
}

// Faults are the failed prefill attempts of one request, in order, followed by NoFault.
type Faults [2]Leg

// Add adds an attempt if there is room.
func (f *Faults) Add(target int, fault Fault) {
	for i := range f {
		if f[i].Fault == NoFault {
			f[i] = Leg{target, fault}
			return
		}
	}
}

// Text returns the header's value, or "" without faults.
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

// ParseFaults parses a header's value. It ignores unknown content and repeated targets.
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
