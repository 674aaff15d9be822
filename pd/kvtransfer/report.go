package kvtransfer

import (
	"strconv"
	"strings"
	"time"
)

// Report is the decode proxy's report about a response, in a response header. It contains no
// addresses: a target is identified by its index in the request's list.
type Report struct {
	Known  bool
	Target int // that computed the prompt; -1: the decode engine did
	// Failed is the number of targets that failed, starting from the first.
	Failed int
	// Prefill is the duration of the prefill request, Decode the time from the start of the decode
	// request to its first content.
	Prefill, Decode time.Duration
	// Local is why the decode engine computed the prompt although a prefill engine had answered.
	Local LocalCause
	// Faults are in a separate header (ParseFaults).
	Faults Faults
}

// LocalCause is why a decode engine computed a prompt that a prefill engine had computed too.
type LocalCause uint8

// Causes. Zero is unknown.
const (
	LocalUnknown  LocalCause = iota
	LocalNothing             // the prefill engine's answer has no KV transfer that decode can use
	LocalTransfer            // decode failed with the KV transfer
	LocalLate                // the KV transfer was too old, or may have read freed blocks
	numLocalCauses
)

// Text returns the header's value.
func (r *Report) Text() string {
	b := make([]byte, 0, 64)
	b = strconv.AppendInt(b, int64(r.Target), 10)
	b = append(b, ";failed="...)
	b = strconv.AppendInt(b, int64(r.Failed), 10)
	b = append(b, ";prefill_us="...)
	b = strconv.AppendInt(b, r.Prefill.Microseconds(), 10)
	b = append(b, ";decode_us="...)
	b = strconv.AppendInt(b, r.Decode.Microseconds(), 10)
	if r.Local != LocalUnknown {
		b = strconv.AppendInt(append(b, ";local="...), int64(r.Local), 10)
	}
	return string(b)
}

// Computers are the metric labels for who computed a prompt that was to be prefilled remotely: the
// first target, another one, the decode engine, or unknown. A proxy without a report may have had
// the decode engine do it.
var Computers = [...]string{"first", "alternate", "decode", "unreported"}

// By returns the index in Computers of who computed the prompt.
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

// maxReported is the longest accepted duration.
const maxReported = time.Hour

// ParseReport parses a header's value. Unknown content gives a Report that is not Known.
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
		case "local":
			if v < int64(numLocalCauses) {
				r.Local = LocalCause(v)
			}
		}
	}
	return r
}
