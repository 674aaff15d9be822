package wire

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

func TestKeysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOf(rapid.Map(rapid.Uint64(), func(v uint64) block.Key { return block.Key(v) })).Draw(t, "keys")
		tail := rapid.SliceOf(rapid.Byte()).Draw(t, "tail")
		enc := append(AppendKeys(nil, keys), tail...)
		got, rest, err := DecodeKeys(enc, []block.Key{7})
		if err != nil || got[0] != 7 || !slices.Equal(got[1:], keys) || !slices.Equal(rest, tail) {
			t.Fatalf("got %v, rest %v, error %v", got, rest, err)
		}
	})
}

func TestKeysRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []byte
		want error
	}{
		{"empty", nil, ErrCodecShort},
		{"cut count", []byte{0x80}, ErrCodecShort},
		{"endless count", slices.Repeat([]byte{0xff}, 12), ErrCodecValue},
		{"cut key", AppendKeys(nil, []block.Key{1, 2})[:16], ErrCodecShort},
		{"over the limit", binary.AppendUvarint(nil, MaxKeys+1), ErrCodecLimit},
		{"far over the limit", binary.AppendUvarint(nil, 1<<61+1), ErrCodecLimit},
	} {
		got, _, err := DecodeKeys(c.in, nil)
		if !errors.Is(err, c.want) || got != nil {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
}

func TestKeysAllocations(t *testing.T) {
	keys := make([]block.Key, 160)
	buf, dst := AppendKeys(nil, keys), make([]block.Key, 0, 160)
	n := testing.AllocsPerRun(100, func() {
		buf = AppendKeys(buf[:0], keys)
		_, _, _ = DecodeKeys(buf, dst)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzDecodeKeys(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendKeys(nil, []block.Key{1, 2, 3}))
	f.Add(binary.AppendUvarint(nil, MaxKeys))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, in []byte) {
		keys, rest, err := DecodeKeys(in, nil)
		if err != nil {
			return
		}
		again, more, err := DecodeKeys(append(AppendKeys(nil, keys), rest...), nil)
		if err != nil || !slices.Equal(again, keys) || !slices.Equal(more, rest) {
			t.Fatalf("%v, %v, %v after %v, %v", again, more, err, keys, rest)
		}
	})
}
