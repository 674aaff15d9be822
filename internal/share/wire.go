package share

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// errWire says that a peer sent a value that cannot be decoded.
var errWire = errors.New("share: malformed value from a peer")

// cursor reads the values of gauges and hints. After the first bad field it is
// bad for good and gives zeros.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) int() int64 {
	v, n := binary.Varint(c.b)
	if n <= 0 {
		c.bad = true
		return 0
	}
	c.b = c.b[n:]
	return v
}

// count is int for values that cannot be negative.
func (c *cursor) count() int64 {
	v := c.int()
	if v < 0 {
		c.bad = true
		return 0
	}
	return v
}

// float reads a finite number.
func (c *cursor) float() float64 {
	v := math.Float64frombits(c.fixed())
	if math.IsNaN(v) || math.IsInf(v, 0) {
		c.bad = true
		return 0
	}
	return v
}

// fixed reads eight bytes.
func (c *cursor) fixed() uint64 {
	if len(c.b) < 8 {
		c.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint64(c.b)
	c.b = c.b[8:]
	return v
}

// text reads a string of at most limit bytes.
func (c *cursor) text(limit int) string {
	n := c.count()
	if c.bad || n > int64(limit) || n > int64(len(c.b)) {
		c.bad = true
		return ""
	}
	s := string(c.b[:n])
	c.b = c.b[n:]
	return s
}

// maxAge bounds how old a peer may say that something is. Ages are sent rather
// than times because replicas' clocks differ.
const maxAge = time.Hour

func (c *cursor) age() time.Duration { return min(time.Duration(c.count()), maxAge) }

func appendFloat(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendVarint(b, int64(len(s))), s...)
}

// maxAddress bounds the endpoint names that peers send.
const maxAddress = 128
