package indexer

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Replicas of different versions exchange keys, so these values must never change.
func TestHasherGolden(t *testing.T) {
	h := block.NewHasher(block.Seed{1, 2, 3})
	root := h.Root(block.Scope{Model: "m", Salt: "s"})
	other := block.NewHasher(block.Seed{}).Root(block.Scope{})
	for _, c := range []struct {
		name      string
		got, want block.Key
	}{
		{"root", root, 0x7936e747907616f1},
		{"root of nothing, zero seed", other, 0x5684493b91bd53ef},
		{"root of an adapter in token space", h.Root(block.Scope{Space: block.SpaceTokens, Model: "m", Adapter: "a"}), 0x7c4e79558cddd17f},
		{"empty block", h.Child(root, nil), 0xee8f325aa5b22169},
		{"1 byte", h.Child(root, []byte("a")), 0xa084c2c4cd429b8e},
		{"3 bytes", h.Child(root, []byte("abc")), 0xc0bd09a3b025edbc},
		{"4 bytes", h.Child(root, []byte("abcd")), 0x90deac8ee967892d},
		{"7 bytes", h.Child(root, []byte("abcdefg")), 0xb93db0907dd2cc1c},
		{"15 bytes", h.Child(root, []byte("abcdefghijklmno")), 0xd6fad3291b646445},
		{"16 bytes", h.Child(root, []byte("abcdefghijklmnop")), 0xc39d3baf14e86415},
		{"70 bytes", h.Child(root, []byte(strings.Repeat("0123456789", 7))), 0x9cb4090069c8e0a3},
		{"256 bytes", h.Child(root, []byte(strings.Repeat("0123456789abcdef", 16))), 0x9a1763ee0eb1ea7d},
		{"grandchild", h.Child(h.Child(root, []byte("abcd")), []byte("abcd")), 0xd469b676425f283f},
	} {
		if c.got != c.want {
			t.Errorf("%s: 0x%016x, want 0x%016x", c.name, uint64(c.got), uint64(c.want))
		}
	}
}

func TestHasherSeparates(t *testing.T) {
	h := block.NewHasher(block.Seed{7})
	seen := map[block.Key]string{}
	add := func(name string, k block.Key) {
		if k == 0 {
			t.Errorf("%s: key 0", name)
		}
		if was, dup := seen[k]; dup {
			t.Errorf("%s and %s share key %x", was, name, k)
		}
		seen[k] = name
	}
	add("scope m", h.Root(block.Scope{Model: "m"}))
	add("scope m in tokens", h.Root(block.Scope{Space: block.SpaceTokens, Model: "m"}))
	add("scope m in chunks", h.Root(block.Scope{Space: block.SpaceChunks, Model: "m"}))
	add("adapter m", h.Root(block.Scope{Adapter: "m"}))
	add("salt m", h.Root(block.Scope{Salt: "m"}))
	add("model ma", h.Root(block.Scope{Model: "ma"}))
	add("model m, adapter a", h.Root(block.Scope{Model: "m", Adapter: "a"}))
	add("other seed", block.NewHasher(block.Seed{8}).Root(block.Scope{Model: "m"}))
	root := h.Root(block.Scope{Model: "m"})
	add("child of other seed", block.NewHasher(block.Seed{8}).Child(root, []byte("x")))
	add("child of other parent", h.Child(root+1, []byte("x")))
	add("child", h.Child(root, []byte("x")))
}

// Every length has its own tail path, and zero bytes are content.
func TestLadderIsChild(t *testing.T) {
	h := block.NewHasher(block.Seed{3})
	text := make([]byte, 200)
	for i := range text {
		text[i] = byte(i * 7)
	}
	for step := 1; step < 70; step++ {
		l := h.Words().Ladder(99, text)
		for n := step - 1; n <= len(text); n += step {
			if got, want := l.Child(n), h.Child(99, text[:n]); got != want {
				t.Fatalf("%d bytes in steps of %d: %x, want %x", n, step, got, want)
			}
		}
	}
}

func TestHasherLengths(t *testing.T) {
	h := block.NewHasher(block.Seed{5})
	root := h.Root(block.Scope{Model: "m"})
	seen := map[block.Key]int{}
	for _, fill := range []byte{0, 0xff, 'x'} {
		buf := bytes.Repeat([]byte{fill}, 100)
		for n := range 101 {
			if n == 0 && fill != 0 {
				continue // the empty block is the same for any fill
			}
			k := h.Child(root, buf[:n])
			if was, dup := seen[k]; dup {
				t.Errorf("length %d of %x has the key of entry %d", n, fill, was)
			}
			seen[k] = n + 1000*int(fill)
		}
	}
	text := []byte("The quick brown fox jumps over the lazy dog, and then over the next one: 64+")
	for n := range len(text) {
		padded := append(bytes.Clone(text[:n]), 0)
		if h.Child(root, text[:n]) == h.Child(root, padded) {
			t.Errorf("length %d: a zero byte more gives the same key", n)
		}
	}
}

// Each input byte, at each position of each length, reaches the key; each
// flipped bit changes about half of the 63 free bits.
func TestHasherAvalanche(t *testing.T) {
	h := block.NewHasher(block.Seed{9, 9})
	root := h.Root(block.Scope{Model: "m"})
	rng := rand.New(rand.NewPCG(1, 2))
	var perBit [63]int
	flips := 0
	for n := 1; n <= 100; n++ {
		buf := make([]byte, n)
		for i := range buf {
			buf[i] = byte(rng.Uint32())
		}
		base := h.Child(root, buf)
		for bit := range 8 * n {
			buf[bit/8] ^= 1 << (bit % 8)
			diff := uint64(base ^ h.Child(root, buf))
			buf[bit/8] ^= 1 << (bit % 8)
			if c := bits.OnesCount64(diff); c < 8 || c > 55 {
				t.Errorf("length %d, bit %d: %d of 63 bits change", n, bit, c)
			}
			for i := range perBit {
				perBit[i] += int(diff >> i & 1)
			}
			flips++
		}
	}
	for i, c := range perBit {
		if share := float64(c) / float64(flips); share < 0.48 || share > 0.52 {
			t.Errorf("key bit %d changes in %.3f of the flips", i, share)
		}
	}
}

// Keys of near-equal blocks spread evenly over the low and the high bits, which
// tables use as positions, and do not collide.
func TestHasherDistribution(t *testing.T) {
	h := block.NewHasher(block.Seed{3})
	root := h.Root(block.Scope{Model: "m"})
	const n, buckets = 1 << 18, 1 << 8
	var low, high [buckets]int
	seen := make(map[block.Key]struct{}, n)
	buf := make([]byte, 64)
	for i := range n {
		buf[0], buf[17], buf[40] = byte(i), byte(i>>8), byte(i>>16)
		k := h.Child(root, buf)
		seen[k] = struct{}{}
		low[k%buckets]++
		high[uint64(k)<<1>>56]++
	}
	if len(seen) != n {
		t.Errorf("%d collisions", n-len(seen))
	}
	for name, counts := range map[string][buckets]int{"low": low, "high": high} {
		var chi float64
		for _, c := range counts {
			d := float64(c) - n/buckets
			chi += d * d / (n / buckets)
		}
		// 255 degrees of freedom: mean 255, standard deviation 22.6.
		if chi < 255-6*22.6 || chi > 255+6*22.6 {
			t.Errorf("%s bits: chi-squared %.0f", name, chi)
		}
	}
}

func BenchmarkChild64(b *testing.B) {
	buf := []byte(strings.Repeat("0123456789abcdef", 4))
	b.Run("folded", func(b *testing.B) {
		h := block.NewHasher(block.Seed{1})
		var k block.Key
		for b.Loop() {
			k = h.Child(k, buf)
		}
	})
	b.Run("xxhash", func(b *testing.B) {
		var d xxhash.Digest
		k := uint64(1)
		for b.Loop() {
			d.ResetWithSeed(k)
			_, _ = d.Write(buf)
			k = d.Sum64()
		}
	})
}
