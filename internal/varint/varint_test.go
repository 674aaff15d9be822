package varint_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/varint"
)

func TestReader(t *testing.T) {
	b := binary.AppendUvarint(nil, 300)
	b = binary.AppendVarint(b, -7)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(2.5))
	b = binary.LittleEndian.AppendUint32(b, 9)
	b = append(binary.AppendUvarint(b, 2), "ab"...)
	b = append(b, 3)
	r := varint.Reader{B: b}
	if u, i, f, w, s, c := r.Uint(), r.Int(), r.Float(), r.Fixed32(), r.Bytes(), r.Byte(); u != 300 || i != -7 || f != 2.5 || w != 9 || string(s) != "ab" || c != 3 {
		t.Errorf("read %d %d %v %d %q %d", u, i, f, w, s, c)
	}
	if r.Err != nil || len(r.B) != 0 {
		t.Errorf("err %v, %d bytes left", r.Err, len(r.B))
	}
}

func TestErrorsStick(t *testing.T) {
	for name, c := range map[string]struct {
		in   []byte
		read func(r *varint.Reader)
		want error
	}{
		"empty":          {nil, func(r *varint.Reader) { r.Uint() }, varint.ErrShort},
		"endless varint": {[]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}, func(r *varint.Reader) { r.Int() }, varint.ErrValue},
		"long string":    {[]byte{9, 1}, func(r *varint.Reader) { r.Bytes() }, varint.ErrShort},
		"long list":      {[]byte{9, 1}, func(r *varint.Reader) { r.Count() }, varint.ErrShort},
		"over 32 bits":   {binary.AppendUvarint(nil, 1<<32), func(r *varint.Reader) { r.Uint32() }, varint.ErrValue},
		"negative":       {binary.AppendVarint(nil, -1), func(r *varint.Reader) { r.Natural() }, varint.ErrValue},
		"not a number":   {binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.NaN())), func(r *varint.Reader) { r.Float() }, varint.ErrValue},
	} {
		r := varint.Reader{B: c.in}
		c.read(&r)
		if !errors.Is(r.Err, c.want) {
			t.Errorf("%s: %v, want %v", name, r.Err, c.want)
		}
		if r.Uint() != 0 || r.Byte() != 0 || r.Bytes() != nil || !errors.Is(r.Err, c.want) {
			t.Errorf("%s: the error did not stick", name)
		}
	}
}
