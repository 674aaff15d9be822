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

// Explained is the result of a dry run: the decision for a request at this moment.
type Explained struct {
	explanation.Explanation
	// Knowledge is the state of each endpoint's cache data (a knowledge.State). Only exact and
	// partial data is matched precisely.
	Knowledge map[string]string `json:"knowledge"`
	// AgeMS is the maximum lag of that data for busy engines without recent events.
	AgeMS map[string]float64 `json:"age_ms,omitempty"`
}

// explain handles POST /debug/explain. The body and headers are the request's. The query holds its
// path and, optionally, the subset that the proxy would allow. Nothing is tracked or recorded.
func (s *Server) explain(ctx context.Context, hr *http.Request) (any, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, hr.Body, int64(s.maxBody())))
	if err != nil {
		return nil, fmt.Errorf("request body: %w", err)
	}
	q := hr.URL.Query()
	r := &request.Request{ID: hr.Header.Get("x-request-id"), Path: q.Get("path"), Headers: hr.Header, Body: body}
	if r.Path == "" {
		return nil, errors.New("the query parameter path is required, such as path=/v1/chat/completions")
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
			// The knowledge at match time counts, even if events have improved it since.
			state, _ := s.knowledgeOf(ep, min(before[ep.ID], s.share.State(ep.ID)))
			out.Knowledge[c.Endpoint] = state.String()
			if age := s.share.Age(ep.ID); age > 0 {
				out.AgeMS[c.Endpoint] = millis(age)
			}
		}
	}
	return out, nil
}

// maxBody returns the maximum request body size.
func (s *Server) maxBody() int {
	const usual = 64 << 20
	if s.o.MaxBody > 0 {
		return s.o.MaxBody
	}
	return usual
}
