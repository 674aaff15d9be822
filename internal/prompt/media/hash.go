package media

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"io"
	"strings"
	"sync"

	"github.com/zeebo/blake3"
)

// digestSize is the length of a digest in bytes.
const digestSize = 32

// form is a layout of the hash input.
type form int

const (
	framed form = iota // vLLM 0.32 and newer
	plain              // vLLM 0.23
	forms
)

// String names the versions that hash so.
func (f form) String() string { return [...]string{"vLLM 0.32", "vLLM 0.23"}[f] }

// A way of hashing is a form and one of the names of the model.

// formOf splits a hashing variant into its form and the index of the model name.
func formOf(way, models int) (form, int) { return form(way / models), way % models }

// chunk is how much of a file is decoded at a time, in bytes: a multiple of 3.
const chunk = 96 << 10

type buffer [chunk]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// hashImage returns the digests of an image file for every hashing variant, or for one only. It
// returns false for invalid base64 and for file kinds whose hash input is unknown.
func hashImage(ctx context.Context, data string, way int, models []string) (digests [][digestSize]byte, ok bool, err error) {
	size, ok := decodedLen(data)
	if !ok {
		return nil, false, nil
	}
	buf := buffers.Get().(*buffer)
	defer buffers.Put(buf)
	r := base64.NewDecoder(base64.StdEncoding, strings.NewReader(data))
	var hashers [forms]*blake3.Hasher
	for at := 0; at < size; {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		n, err := io.ReadFull(r, buf[:min(chunk, size-at)])
		if err != nil {
			return nil, false, nil
		}
		if at == 0 {
			converted, known := sniff(buf[:n])
			if !known {
				return nil, false, nil
			}
			for f := range forms {
				if only, _ := formOf(max(way, 0), len(models)); way == unknown || only == f {
					hashers[f] = f.begin(size, converted)
				}
			}
		}
		for _, h := range hashers {
			if h != nil {
				_, _ = h.Write(buf[:n])
			}
		}
		at += n
	}
	for f, h := range hashers {
		for i, model := range models {
			if h == nil || way != unknown && way != f*len(models)+i {
				continue
			}
			digests = append(digests, form(f).end(h.Clone(), model))
		}
	}
	return digests, len(digests) > 0, nil
}

// decodedLen returns the decoded length of base64 text. It returns false if the text is empty or
// invalid.
func decodedLen(data string) (int, bool) {
	n := len(data)
	if n == 0 || n%4 != 0 || strings.ContainsAny(data, "\r\n") { // which the decoder would pass over
		return 0, false
	}
	pad := 0
	for pad < 2 && data[n-1-pad] == '=' {
		pad++
	}
	return n/4*3 - pad, true
}

// begin returns a hasher with the bytes that precede a file of the given size. converted is true if
// the picture is not RGB already.
func (f form) begin(size int, converted bool) *blake3.Hasher {
	h := blake3.New()
	w := writer{h}
	if f == plain {
		w.text("imageimage")
		return h
	}
	w.frame("image")
	w.tag(tagLeaf)
	w.frame("image")
	if converted {
		w.tag(tagMap)
		w.count(2)
		w.frame("io_config")
		w.tag(tagMap)
		w.count(2)
		w.frame("image_mode")
		w.leaf("RGB")
		w.frame("rgba_background_color")
		w.tag(tagList)
		w.count(3)
		for range 3 {
			w.leaf(string(binary.LittleEndian.AppendUint64(nil, 255)))
		}
		w.frame("data")
	}
	w.tag(tagLeaf)
	w.count(size)
	return h
}

// end finishes a digest.
func (f form) end(h *blake3.Hasher, model string) (d [digestSize]byte) {
	w := writer{h}
	if f == plain {
		w.text("model_id")
		w.text(model)
	} else {
		w.frame("model_id")
		w.leaf(model)
	}
	h.Sum(d[:0])
	return d
}

// Tags of values in the framed form.
const (
	tagList = 1
	tagMap  = 2
	tagLeaf = 3
)

// writer writes values in the framed form.
type writer struct{ h *blake3.Hasher }

func (w writer) text(s string) { _, _ = w.h.WriteString(s) }
func (w writer) tag(t byte)    { _, _ = w.h.Write([]byte{t}) }
func (w writer) count(n int)   { _, _ = w.h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
func (w writer) frame(s string) {
	w.count(len(s))
	w.text(s)
}

func (w writer) leaf(s string) {
	w.tag(tagLeaf)
	w.frame(s)
}
