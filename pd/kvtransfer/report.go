package kvtransfer

import (
	"strconv"
	"strings"
	"time"
)

// Report is what the proxy beside a decode engine tells, in a header of the answer, of
// how it was made. It names no addresses: a target is told by its place in the list
// that the request named.
type Report struct {
	Known  bool
	Target int // that computed the prompt; -1: the decode engine did
	// Failed is how many targets, the first ones, were asked in vain.
	Failed int
	// Prefill is how long the prefill leg took, Decode the time from the decode leg's
	// beginning to its first content.
	Prefill, Decode time.Duration
	// Faults are in a header of their own (ParseFaults).
	Faults Faults
}

// Text returns the header's value.
func (r *Report) Text() string {
	b := make([]byte, 0, 48)
	b = strconv.AppendInt(b, int64(r.Target), 10)
	b = append(b, ";failed="...)
	b = strconv.AppendInt(b, int64(r.Failed), 10)
	b = append(b, ";prefill_us="...)
	b = strconv.AppendInt(b, r.Prefill.Microseconds(), 10)
	b = append(b, ";decode_us="...)
	return string(strconv.AppendInt(b, r.Decode.Microseconds(), 10))
}

// Computers names, as metrics do, who computed a prompt that was to be computed elsewhere:
// the target named first, another one, the decode engine, or nobody tells. A proxy that says
// nothing may have had the decode engine do it.
var Computers = [...]string{"first", "alternate", "decode", "untold"}

// By returns the place in Computers of who computed the prompt.
func (r *Report) By() int {
	switch {
	case !r.Known:
		return 3
	case r.Target < 0:
		return 2
	case r.Target > 0:
		return 1
	}
	return 0
}

// maxReported bounds the durations that are believed.
const maxReported = time.Hour

// ParseReport reads a header's value. What it does not understand gives a Report that
// is not Known.
func ParseReport(s string) (r Report) {
	if s == "" || len(s) > 128 {
		return Report{}
	}
	first, rest, _ := strings.Cut(s, ";")
	n, err := strconv.Atoi(first)
	if err != nil || n < -1 || n > 64 {
		return Report{}
	}
	r = Report{Known: true, Target: n}
	for part := range strings.SplitSeq(rest, ";") {
		key, value, _ := strings.Cut(part, "=")
		v, err := strconv.ParseInt(value, 10, 64)
		if err != nil || v < 0 || v > maxReported.Microseconds() {
			return Report{}
		}
		switch key {
		case "failed":
			r.Failed = int(min(v, 64))
		case "prefill_us":
			r.Prefill = time.Duration(v) * time.Microsecond
		case "decode_us":
			r.Decode = time.Duration(v) * time.Microsecond
		}
	}
	return r
}
