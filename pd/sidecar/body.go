package sidecar

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/pd/handover"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/bodies"
)

// compressed reports whether a body is in an encoding that is not looked into: any of any
// line counts.
func compressed(h http.Header) bool {
	for _, line := range h.Values("Content-Encoding") {
		for e := range strings.SplitSeq(line, ",") {
			if e = strings.TrimSpace(e); e != "" && !strings.EqualFold(e, "identity") {
				return true
			}
		}
	}
	return false
}

// readBody reads a body within its limit and takes hand-over members off it. It answers
// the client and returns false where that cannot be done.
func (s *Server) readBody(in *bodies.Intake, from io.ReadCloser) (o handover.Object, ok bool) {
	refuse := func(status int, message string) (handover.Object, bool) {
		writeError(in.W, status, message)
		return o, false
	}
	text, err := in.Receive(from, s.o.MaxBody)
	switch large := (*http.MaxBytesError)(nil); {
	case errors.As(err, &large):
		return refuse(http.StatusRequestEntityTooLarge, "the request body is too large")
	case errors.Is(err, bodies.ErrMemory):
		return refuse(http.StatusServiceUnavailable, "no memory left for the request body")
	case err != nil:
		return refuse(http.StatusBadRequest, "the request body broke off")
	}
	if o, err = handover.Parse(text); err != nil {
		return refuse(http.StatusBadRequest, "the request body is not a JSON object")
	}
	body, removed, err := s.o.HandOver.Apply(&o)
	if err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	if removed != nil {
		s.m.stripped.Inc()
		if o, err = handover.Parse(body); err != nil {
			return refuse(http.StatusBadRequest, err.Error())
		}
	}
	return o, true
}

// maxSpace bounds the white space before the JSON of a body that is passed on.
const maxSpace = 4 << 10

// inspect takes hand-over members off the body of a request that is passed on: engines
// serve prompts at more paths than those that are split (/invocations, PUT /generate). What is
// no JSON object, as forms, is not touched. It answers the client and returns false where the
// body may hold members that cannot be looked for.
func (s *Server) inspect(in *bodies.Intake) bool {
	w, r := in.W, in.R
	if r.Body == nil || r.Body == http.NoBody {
		return true
	}
	if compressed(r.Header) {
		writeError(w, http.StatusUnsupportedMediaType, "compressed request bodies are not supported")
		return false
	}
	text, space := bufio.NewReader(r.Body), 0
	var first byte
	for {
		c, err := text.ReadByte()
		if errors.Is(err, io.EOF) {
			r.Body = io.NopCloser(strings.NewReader(strings.Repeat(" ", space)))
			return true
		} else if err != nil || space > maxSpace {
			writeError(w, http.StatusBadRequest, "the request body broke off, or begins with white space alone")
			return false
		}
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			first = c
			break
		}
		space++
	}
	_ = text.UnreadByte() // the byte that was just read
	rest := struct {
		io.Reader
		io.Closer
	}{text, r.Body}
	switch first {
	case 0, 0xef, 0xfe, 0xff: // Python reads JSON in UTF-16 and UTF-32 too, and behind a byte order mark
		writeError(w, http.StatusBadRequest, "request bodies must be UTF-8 without a byte order mark")
		return false
	case '{':
		o, ok := s.readBody(in, rest)
		if !ok {
			return false
		}
		whole := handover.Pieces{o.Text()}
		r.Body, r.ContentLength, r.TransferEncoding = in.Send(whole), int64(len(o.Text())), nil
		r.GetBody = func() (io.ReadCloser, error) { return in.Send(whole), nil }
		r.Header.Set("Content-Length", strconv.Itoa(len(o.Text())))
		return true
	}
	rest.Reader = io.MultiReader(strings.NewReader(strings.Repeat(" ", space)), text)
	r.Body = rest
	return true
}
