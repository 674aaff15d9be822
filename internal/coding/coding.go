package coding

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// Names of request headers that name the codings of a body.
const (
	HeaderStandard = "content-encoding"
	// HeaderSGLang is the header of SGLang's own decompression
	// (SGLANG_ENABLE_REQUEST_DECOMPRESSION).
	HeaderSGLang = "x-body-compressed"
)

// Errors of Decode.
var (
	ErrUnknown = errors.New("coding: unknown content coding")
	ErrLimit   = errors.New("coding: the decoded body exceeds the limit")
	ErrMemory  = errors.New("coding: no memory left to decode the body")
	ErrDamaged = errors.New("coding: the body is damaged")
	ErrCut     = errors.New("coding: the body ends early")
)

const (
	// maxRatio is how many times its compressed size a body may have. Text compresses
	// 3 to 10 times; prompts with long repetitions reach 50.
	maxRatio = 100
	// freeSize is the size that a body may have at any ratio.
	freeSize = 1 << 20
	// maxWindow bounds the memory of a zstd decoder; RFC 8878 recommends that decoders
	// support at least 8 MiB.
	maxWindow = 8 << 20
	// maxCodings bounds how many codings may be nested.
	maxCodings = 2
	// firstStep is the size of the first buffer of a decoded body.
	firstStep = 32 << 10
)

// Limits bound one decoding.
type Limits struct {
	Size int              // largest decoded body in bytes
	Take func(n int) bool // reserves n bytes of memory; nil reserves nothing
}

// List returns the codings that header values name, in the order in which they were
// applied. It drops identity. The result is empty for a plain body.
func List(values ...string) []string {
	var list []string
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			switch name = strings.ToLower(strings.TrimSpace(name)); name {
			case "", "identity":
			case "x-gzip":
				list = append(list, "gzip")
			default:
				list = append(list, name)
			}
		}
	}
	return list
}

// Of returns the codings of a body from the values of the two headers. SGLang's header counts if it
// is the only one, or if both name the same coding.
func Of(standard, sglang []string) []string {
	list, own := List(standard...), List(sglang...)
	switch {
	case len(own) == 0:
		return list
	case len(list) == 0 || len(list) == 1 && len(own) == 1 && list[0] == own[0]:
		return own
	}
	return append(list, own...)
}

// Known reports whether Decode supports all of the codings.
func Known(codings []string) bool {
	return len(codings) <= maxCodings && !slices.ContainsFunc(codings, func(name string) bool {
		return name != "gzip" && name != "deflate" && name != "br" && name != "zstd"
	})
}

// Decode returns the body without its codings. The error is one of this package's errors. With
// ErrCut, the result is the decodable part of the body's beginning.
func Decode(body []byte, codings []string, l Limits) ([]byte, error) {
	if !Known(codings) {
		return nil, ErrUnknown
	}
	cut := false
	for i := len(codings) - 1; i >= 0; i-- {
		plain, err := decode(body, codings[i], l)
		if errors.Is(err, ErrCut) {
			cut, err = true, nil
		}
		if err != nil {
			return nil, err
		}
		body = plain
	}
	if cut {
		return body, ErrCut
	}
	return body, nil
}

func decode(body []byte, name string, l Limits) ([]byte, error) {
	r, done, err := open(body, name)
	if err != nil {
		return nil, err
	}
	defer done()
	limit := min(l.Size, max(freeSize, maxRatio*len(body)))
	var out []byte
	for {
		if len(out) == cap(out) {
			if out, err = grow(out, limit, l.Take); err != nil {
				return nil, err
			}
		}
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		switch {
		case len(out) > limit:
			return nil, ErrLimit
		case errors.Is(err, io.EOF):
			return out, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return out, ErrCut
		case err != nil && ended(name, err):
			return out, ErrCut
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
}

// ended reports whether a decoder's error is that its input ended early.
func ended(name string, err error) bool {
	return name == "br" && strings.Contains(err.Error(), "unexpected EOF")
}

// grow returns a larger buffer, one byte over the limit at most: a body that exceeds the
// limit is seen by that byte.
func grow(have []byte, limit int, take func(int) bool) ([]byte, error) {
	size := min(max(2*cap(have), firstStep), limit+1)
	if size <= cap(have) {
		return nil, ErrLimit
	}
	if take != nil && !take(size-cap(have)) {
		return nil, ErrMemory
	}
	return append(make([]byte, 0, size), have...), nil
}

// Decoders have buffers of tens of kilobytes each.
var (
	gzips, zlibs, flates sync.Pool
	brotlis              = sync.Pool{New: func() any { return brotli.NewReader(nil) }}
	zstds                = sync.Pool{New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil // the options are constants
		}
		return d
	}}
)

// open returns a decoder of the body, and a function that releases it.
func open(body []byte, name string) (r io.Reader, done func(), err error) {
	in := bytes.NewReader(body)
	switch name {
	case "gzip":
		d, _ := gzips.Get().(*gzip.Reader)
		if d == nil {
			d = new(gzip.Reader)
		}
		err, done, r = d.Reset(in), func() { gzips.Put(d) }, d
	case "deflate":
		r, done, err = openDeflate(in)
	case "br":
		d := brotlis.Get().(*brotli.Reader)
		err, done, r = d.Reset(in), func() { brotlis.Put(d) }, d
	case "zstd":
		d, _ := zstds.Get().(*zstd.Decoder)
		if d == nil {
			return nil, nil, ErrUnknown
		}
		done = func() {
			_ = d.Reset(nil) // drops the reference to the body
			zstds.Put(d)
		}
		err, r = d.Reset(in), d
	default:
		return nil, nil, ErrUnknown
	}
	if err == nil {
		return r, done, nil
	}
	if done != nil {
		done()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil, ErrCut
	}
	return nil, nil, fmt.Errorf("%w: %w", ErrDamaged, err)
}

// openDeflate reads the zlib format, as RFC 9110 defines the coding, and raw deflate,
// as some clients send it.
func openDeflate(in *bytes.Reader) (io.Reader, func(), error) {
	var head [2]byte
	_, _ = in.ReadAt(head[:], 0)
	if head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
		if d, ok := zlibs.Get().(io.ReadCloser); ok {
			return d, func() { zlibs.Put(d) }, d.(zlib.Resetter).Reset(in, nil)
		}
		d, err := zlib.NewReader(in)
		return d, func() {
			if d != nil {
				zlibs.Put(d)
			}
		}, err
	}
	if d, ok := flates.Get().(io.ReadCloser); ok {
		return d, func() { flates.Put(d) }, d.(flate.Resetter).Reset(in, nil)
	}
	d := flate.NewReader(in)
	return d, func() { flates.Put(d) }, nil
}
