package coding

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// encode compresses body with one coding; raw is deflate without the zlib header.
func encode(t testing.TB, name string, body []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	switch name {
	case "gzip":
		w = gzip.NewWriter(&out)
	case "deflate":
		w = zlib.NewWriter(&out)
	case "raw":
		w, err = flate.NewWriter(&out, flate.BestSpeed)
	case "br":
		w = brotli.NewWriter(&out)
	case "zstd":
		w, err = zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// text returns n bytes that compress about as well as prose does.
func text(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]byte, 0, n)
	for len(out) < n {
		out = append(out, "abcdefghijklmnopqrstuvwxyz     "[r.IntN(31)])
	}
	return out
}

var encoders = []struct{ made, coding string }{
	{"gzip", "gzip"}, {"deflate", "deflate"}, {"raw", "deflate"}, {"br", "br"}, {"zstd", "zstd"},
}

func TestDecodeReturnsTheBodyThatWasEncoded(t *testing.T) {
	for _, e := range encoders {
		for _, n := range []int{0, 1, 100, firstStep, firstStep + 1, 300_000} {
			for range 2 { // the second one uses a decoder again
				body := text(n)
				got, err := Decode(encode(t, e.made, body), []string{e.coding}, Limits{Size: 1 << 20})
				if err != nil || !bytes.Equal(got, body) {
					t.Fatalf("%s of %d bytes: Decode() = %d bytes, %v", e.made, n, len(got), err)
				}
			}
		}
	}
	body := text(5000)
	nested := encode(t, "zstd", encode(t, "gzip", body))
	if got, err := Decode(nested, []string{"gzip", "zstd"}, Limits{Size: 1 << 20}); err != nil || !bytes.Equal(got, body) {
		t.Errorf("gzip within zstd: Decode() = %d bytes, %v, want %d", len(got), err, len(body))
	}
}

func TestDecodeBoundsSizeRatioAndMemory(t *testing.T) {
	zeros := make([]byte, 3<<20)
	for _, e := range encoders {
		bomb := encode(t, e.made, zeros)
		if got, err := Decode(bomb, []string{e.coding}, Limits{Size: 64 << 20}); !errors.Is(err, ErrLimit) {
			t.Errorf("%s, ratio %d: Decode() = %d bytes, %v, want ErrLimit", e.made, len(zeros)/len(bomb), len(got), err)
		}
		packed := encode(t, e.made, text(100_000))
		if _, err := Decode(packed, []string{e.coding}, Limits{Size: 99_999}); !errors.Is(err, ErrLimit) {
			t.Errorf("%s, one byte over the limit: %v, want ErrLimit", e.made, err)
		}
		if _, err := Decode(packed, []string{e.coding}, Limits{Size: 100_000}); err != nil {
			t.Errorf("%s, as large as the limit: %v", e.made, err)
		}
		taken := 0
		take := func(n int) bool { taken += n; return taken <= 50_000 }
		if _, err := Decode(packed, []string{e.coding}, Limits{Size: 1 << 20, Take: take}); !errors.Is(err, ErrMemory) {
			t.Errorf("%s without memory: %v, want ErrMemory", e.made, err)
		}
	}
}

func TestDecodeReportsDamageAndUnknownCodings(t *testing.T) {
	for _, e := range encoders {
		body := text(200_000)
		packed := encode(t, e.made, body)
		got, err := Decode(packed[:len(packed)*9/10], []string{e.coding}, Limits{Size: 1 << 20})
		if !errors.Is(err, ErrCut) || len(got) == 0 || !bytes.HasPrefix(body, got) {
			t.Errorf("nine tenths of a body in %s: Decode() = %d bytes, %v, want its beginning and ErrCut", e.made, len(got), err)
		}
		if e.coding == "deflate" { // raw deflate has no magic number, so many bytes are a valid beginning
			continue
		}
		if _, err := Decode([]byte(`{"model":"m","prompt":"plain text"}`), []string{e.coding}, Limits{Size: 1 << 20}); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrCut) {
			t.Errorf("JSON called %s: %v, want ErrDamaged", e.coding, err)
		}
	}
	for _, list := range [][]string{{"compress"}, {"gzip", "gzip", "gzip"}, {"snappy"}} {
		if _, err := Decode([]byte("x"), list, Limits{Size: 10}); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v, want ErrUnknown", list, err)
		}
	}
}

func TestOfJoinsTheTwoHeaders(t *testing.T) {
	for _, c := range []struct{ standard, sglang, want []string }{
		{nil, nil, nil},
		{[]string{"", "identity"}, nil, nil},
		{[]string{" GZIP "}, nil, []string{"gzip"}},
		{[]string{"identity", "x-gzip, br"}, nil, []string{"gzip", "br"}},
		{nil, []string{"zstd"}, []string{"zstd"}},
		{[]string{"zstd"}, []string{"zstd"}, []string{"zstd"}},
		{[]string{"gzip"}, []string{"zstd"}, []string{"gzip", "zstd"}},
	} {
		if diff := cmp.Diff(c.want, Of(c.standard, c.sglang)); diff != "" {
			t.Errorf("Of(%q, %q): %s", c.standard, c.sglang, diff)
		}
	}
}

// FuzzDecode checks that no input makes a decoder panic or exceed its limit.
func FuzzDecode(f *testing.F) {
	for i, e := range encoders {
		f.Add(byte(i), encode(f, e.made, text(1000)))
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, which byte, body []byte) {
		const limit = 1 << 16
		got, err := Decode(body, []string{encoders[int(which)%len(encoders)].coding}, Limits{Size: limit})
		if len(got) > limit {
			t.Errorf("%d bytes with a limit of %d", len(got), limit)
		}
		if err != nil && !errors.Is(err, ErrCut) && got != nil {
			t.Errorf("%d bytes with the error %v", len(got), err)
		}
	})
}
