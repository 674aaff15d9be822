package facts

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/grapevine-epp/grapevine/internal/varint"
)

// errWire means that a peer sent a malformed value.
var errWire = errors.New("facts: malformed value from a peer")

const (
	maxAddress = 128 // bytes of endpoint names from peers
	// maxAge is the greatest age that is accepted from peers. Ages are sent instead of times
	// because replicas' clocks differ.
	maxAge = time.Hour
)

func readAge(r *varint.Reader) time.Duration { return min(time.Duration(r.Natural()), maxAge) }

// readText reads a string of at most limit bytes.
func readText(r *varint.Reader, limit int) string {
	n := r.Natural()
	if n > int64(limit) {
		r.Fail(varint.ErrValue)
	}
	return string(r.Take(uint64(n)))
}

func appendFloat(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendVarint(b, int64(len(s))), s...)
}
