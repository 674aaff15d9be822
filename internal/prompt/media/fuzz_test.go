package media

import (
	"context"
	"encoding/base64"
	"errors"
	"runtime"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// FuzzName names arbitrary files. It must not panic, names must be stable, and invalid base64 must
// have no name.
func FuzzName(f *testing.F) {
	v := load(f)
	for _, text := range []string{v.RGB, v.RGBA} {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, text)
	}
	f.Add([]byte("\xff\xd8\xff\xe0\x00\x04xx\xff\xc0\x00\x0b\x08\x00\x01\x00\x01\x03"), "=")
	f.Add([]byte("RIFF\x00\x00\x00\x00WEBPVP8 "), "AAA\n")
	f.Add([]byte("GIF89a"), "A===")
	sweep.Fuzz(f, sweep.Slow, func(t *testing.T, file []byte, text string) {
		n, ctx := New("m", "org/m"), context.Background()
		for _, data := range []string{base64.StdEncoding.EncodeToString(file), text} {
			name, ok, err := n.Name(ctx, nil, Item{Kind: "image", Data: data})
			if err != nil || ok != (len(name) == 2*digestSize) {
				t.Fatalf("%q: %v, %v", name, ok, err)
			}
			n.Add(name)
			again, same, _ := n.Name(ctx, nil, Item{Kind: "image", Data: data})
			if same != ok || string(again) != string(name) {
				t.Fatalf("%q, then %q", name, again)
			}
		}
		n.Add(file)
	})
}

// TestLargeFile checks that naming a file of 20 MB needs no memory in proportion to its size, and
// stops when the request's context ends.
func TestLargeFile(t *testing.T) {
	v := load(t)
	b, err := base64.StdEncoding.DecodeString(v.RGB)
	if err != nil {
		t.Fatal(err)
	}
	data, n := base64.StdEncoding.EncodeToString(append(b, make([]byte, 20<<20)...)), New("m")
	it := Item{Kind: "image", Data: data}
	name, _, err := n.Name(context.Background(), nil, it)
	if err != nil || len(name) != 2*digestSize {
		t.Fatalf("%q, %v", name, err)
	}
	n.Add(name)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, _ = n.Name(context.Background(), name[:0], it)
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 1<<20 { // a buffer and two hashes
		t.Errorf("%d bytes for a name", taken)
	}
	late := &afterSome{Context: context.Background(), left: 3}
	if _, ok, err := n.Name(late, nil, it); ok || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("named: %v, %v", ok, err)
	}
}

// afterSome is a context that ends after a number of calls to Err.
type afterSome struct {
	context.Context
	left int
}

func (c *afterSome) Err() error {
	if c.left--; c.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// TestNamesChange: an engine that is replaced by another version is followed, once eight
// images were named.
func TestNamesChange(t *testing.T) {
	v := load(t)
	n, ctx := New(v.ModelID), context.Background()
	it := Item{Kind: "image", Data: v.RGB}
	of := map[string]string{}
	for _, c := range v.Cases {
		if c.Item == "png_rgb" && c.Algorithm == "blake3" && c.Kwargs == nil && c.Older == nil {
			of[c.Version] = c.ID
		}
	}
	n.Add([]byte(of["0.33"]))
	if name, _, _ := n.Name(ctx, nil, it); string(name) != of["0.33"] {
		t.Fatalf("%s", name)
	}
	for i := range 2 * keptNames { // which the first falls out of
		n.Add([]byte(of["0.23"][:56] + hex8(i)))
	}
	n.Add([]byte(of["0.23"]))
	for range again {
		_, _, _ = n.Name(ctx, nil, it)
	}
	if name, _, _ := n.Name(ctx, nil, it); string(name) != of["0.23"] {
		t.Errorf("%s", name)
	}
	if len(n.announced) != keptNames {
		t.Errorf("%d names remembered", len(n.announced))
	}
}

func hex8(i int) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 8)
	for k := range b {
		b[7-k] = digits[i>>(4*k)&15]
	}
	return string(b)
}

// TestSniff covers the file kinds for which the engines' hash input is known.
func TestSniff(t *testing.T) {
	png := func(colour byte, chunks string) string {
		return "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08" + string(colour) + "\x00\x00\x00crc." + chunks
	}
	jpeg := func(n byte) string {
		return "\xff\xd8\xff\xe0\x00\x04xx\xff\xff\xd0\xff\xc2\x00\x0b\x08\x00\x01\x00\x01" + string(n)
	}
	for _, c := range []struct {
		file             string
		converted, known bool
	}{
		{png(2, "\x00\x00\x00\x00IDAT"), false, true},
		{png(2, "\x00\x00\x00\x01gAMAxcrc.\x00\x00\x00\x00IDAT"), false, true},
		{png(2, "\x00\x00\x00\x06tRNS"), true, true},
		{png(2, ""), false, false},
		{png(2, "\xff\xff\xff\xffiCCP"), false, false},
		{png(0, ""), true, true}, {png(3, ""), true, true}, {png(6, ""), true, true},
		{jpeg(3), false, true}, {jpeg(1), true, true}, {jpeg(4), true, true},
		{"\xff\xd8\xff\xe1\xff\xff", false, false},
		{"GIF89a", true, true},
		{"RIFF....WEBPVP8 ", false, true}, {"RIFF....WEBPVP8X", false, false},
		{"BM", false, false}, {"", false, false},
	} {
		if converted, known := sniff([]byte(c.file)); converted != c.converted || known != c.known {
			t.Errorf("%q: %v, %v", c.file, converted, known)
		}
	}
}

// BenchmarkName measures naming an image of 1 MB once the hashing variant is known.
func BenchmarkName(b *testing.B) {
	v := load(b)
	head, err := base64.StdEncoding.DecodeString(v.RGB)
	if err != nil {
		b.Fatal(err)
	}
	n, it := New("m"), Item{Kind: "image", Data: base64.StdEncoding.EncodeToString(append(head, make([]byte, 1<<20)...))}
	name, _, _ := n.Name(b.Context(), nil, it)
	n.Add(name)
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		name, _, _ = n.Name(b.Context(), name[:0], it)
	}
}
