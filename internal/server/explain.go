package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Explained is the answer of a dry run: the decision that a request would get
// at this moment.
type Explained struct {
	explanation.Explanation
	// Knowledge is how far each endpoint's cache is known (a knowledge.State). Only
	// exact and partial ones are matched in the prompt's own space.
	Knowledge map[string]string `json:"knowledge"`
	// AgeMS is how far that may be behind engines that work and of which nothing has come
	// for longer than usual.
	AgeMS map[string]float64 `json:"age_ms,omitempty"`
}

// explain answers POST /debug/explain: the body is the request's, its headers
// count, and the query holds its path and, optionally, the subset that the
// proxy would allow. Nothing is booked or remembered.
func (s *Server) explain(ctx context.Context, hr *http.Request) (any, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, hr.Body, int64(s.maxBody())))
	if err != nil {
		return nil, fmt.Errorf("request body: %w", err)
	}
	q := hr.URL.Query()
	r := &request.Request{ID: hr.Header.Get("x-request-id"), Path: q.Get("path"), Headers: hr.Header, Body: body}
	if r.Path == "" {
		return nil, errors.New("the query parameter path is needed, such as path=/v1/chat/completions")
	}
	if q.Has("subset") {
		r.HasSubset = true
		r.Subset = strings.FieldsFunc(q.Get("subset"), func(c rune) bool { return c == ',' || c == ' ' })
	}
	if err := request.Parse(r); err != nil {
		return nil, err
	}
	out := Explained{Knowledge: map[string]string{}, AgeMS: map[string]float64{}}
	before := map[block.EndpointID]knowledge.State{}
	for _, ep := range s.pool.Snapshot().Endpoints {
		before[ep.ID] = s.share.State(ep.ID)
	}
	out.Explanation, err = s.scheduler.Explain(ctx, r)
	if err != nil {
		out.Refused = err.Error()
	}
	for _, c := range out.Candidates {
		if ep := s.pool.Snapshot().Lookup(c.Endpoint); ep != nil {
			// What was matched is no better known than it was before, whatever has come since.
			state, _ := s.prefixes.State(ep, min(before[ep.ID], s.share.State(ep.ID)))
			out.Knowledge[c.Endpoint] = state.String()
			if age := s.share.Age(ep.ID); age > 0 {
				out.AgeMS[c.Endpoint] = millis(age)
			}
		}
	}
	return out, nil
}

// maxBody is the largest request body that is read.
func (s *Server) maxBody() int {
	const usual = 64 << 20
	if s.o.MaxBody > 0 {
		return s.o.MaxBody
	}
	return usual
}
