package sidecar

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/coding"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/bodies"
)

// codings returns a body's content codings from all header lines.
func codings(h http.Header) []string {
	return coding.Of(h.Values(coding.HeaderStandard), h.Values(coding.HeaderSGLang))
}

// readBody reads a body within its limit and removes KV transfer fields. If that fails, it responds
// to the client and returns false.
func (s *Server) readBody(in *bodies.Intake, from io.ReadCloser) (o kvtransfer.Object, ok bool) {
	text, ok := s.receive(in, from)
	if !ok {
		return o, false
	}
	return s.object(in, text)
}

// receive reads a body within its limit and decompresses it. Engines receive the decoded body. If
// that fails, it responds to the client and returns false.
func (s *Server) receive(in *bodies.Intake, from io.ReadCloser) (text []byte, ok bool) {
	refuse := func(status int, message string) ([]byte, bool) {
		writeError(in.W, status, message)
		return nil, false
	}
	list := codings(in.R.Header)
	if !coding.Known(list) {
		return refuse(http.StatusUnsupportedMediaType, "the content coding of the request body is not supported; gzip, zstd, deflate and br are")
	}
	text, err := in.Receive(from, s.o.MaxBody)
	if err == nil && len(list) > 0 {
		text, err = in.Decode(list, s.o.MaxBody)
		in.R.Header.Del(coding.HeaderStandard)
		in.R.Header.Del(coding.HeaderSGLang)
	}
	switch large := (*http.MaxBytesError)(nil); {
	case errors.As(err, &large):
		return refuse(http.StatusRequestEntityTooLarge, "the request body is too large")
	case errors.Is(err, coding.ErrLimit):
		return refuse(http.StatusRequestEntityTooLarge, "the decoded request body is too large")
	case errors.Is(err, coding.ErrDamaged), errors.Is(err, coding.ErrCut):
		return refuse(http.StatusBadRequest, "the compressed request body is damaged")
	case errors.Is(err, bodies.ErrMemory), errors.Is(err, coding.ErrMemory):
		return refuse(http.StatusServiceUnavailable, "no memory left for the request body")
	case err != nil:
		return refuse(http.StatusBadRequest, "the request body broke off")
	}
	return text, true
}

// object removes KV transfer fields from a received body. If that fails, it responds to the client
// and returns false.
func (s *Server) object(in *bodies.Intake, text []byte) (o kvtransfer.Object, ok bool) {
	refuse := func(status int, message string) (kvtransfer.Object, bool) {
		writeError(in.W, status, message)
		return o, false
	}
	o, err := kvtransfer.Parse(text)
	if err != nil {
		return refuse(http.StatusBadRequest, "the request body is not a JSON object")
	}
	body, removed, err := s.o.KVTransfer.Apply(&o)
	if err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	if removed != nil {
		s.m.stripped.Inc()
		if o, err = kvtransfer.Parse(body); err != nil {
			return refuse(http.StatusBadRequest, err.Error())
		}
	}
	return o, true
}

// replaceBody sets the request's body to text.
func replaceBody(in *bodies.Intake, text []byte) {
	whole := kvtransfer.Pieces{text}
	in.R.Body, in.R.ContentLength, in.R.TransferEncoding = in.Send(whole), int64(len(text)), nil
	in.R.GetBody = func() (io.ReadCloser, error) { return in.Send(whole), nil }
	in.R.Header.Set("Content-Length", strconv.Itoa(len(text)))
}

// inspectDecoded is inspect for a compressed body.
func (s *Server) inspectDecoded(in *bodies.Intake) bool {
	text, ok := s.receive(in, in.R.Body)
	if !ok {
		return false
	}
	if rest := bytes.TrimLeft(text, " \t\n\r"); len(rest) > 0 {
		switch rest[0] {
		case 0, 0xef, 0xfe, 0xff:
			writeError(in.W, http.StatusBadRequest, notUTF8)
			return false
		case '{':
			o, ok := s.object(in, text)
			if !ok {
				return false
			}
			text = o.Text()
		}
	}
	replaceBody(in, text)
	return true
}

const notUTF8 = "request bodies must be UTF-8 without a byte order mark"

// maxSpace bounds the white space before the JSON of a forwarded body.
const maxSpace = 4 << 10

// inspect removes KV transfer fields from the body of a forwarded request. Engines serve prompts at
// more paths than the split ones (/invocations, PUT /generate). Bodies that are not JSON objects,
// such as forms, are unchanged. If the body may contain members that cannot be found, inspect
// responds to the client and returns false.
func (s *Server) inspect(in *bodies.Intake) bool {
	w, r := in.W, in.R
	if r.Body == nil || r.Body == http.NoBody {
		return true
	}
	if len(codings(r.Header)) > 0 {
		return s.inspectDecoded(in)
	}
	text, space := bufio.NewReader(r.Body), 0
	var first byte
	for {
		c, err := text.ReadByte()
		if errors.Is(err, io.EOF) {
			r.Body = io.NopCloser(strings.NewReader(strings.Repeat(" ", space)))
			return true
		} else if err != nil || space > maxSpace {
			writeError(w, http.StatusBadRequest, "the request body ended early, or starts with white space only")
			return false
		}
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			first = c
			break
		}
		space++
	}
	_ = text.UnreadByte() // the byte just read
	rest := struct {
		io.Reader
		io.Closer
	}{text, r.Body}
	switch first {
	case 0, 0xef, 0xfe, 0xff: // Python's JSON also accepts UTF-16, UTF-32 and byte order marks
		writeError(w, http.StatusBadRequest, notUTF8)
		return false
	case '{':
		o, ok := s.readBody(in, rest)
		if !ok {
			return false
		}
		replaceBody(in, o.Text())
		return true
	}
	rest.Reader = io.MultiReader(strings.NewReader(strings.Repeat(" ", space)), text)
	r.Body = rest
	return true
}
