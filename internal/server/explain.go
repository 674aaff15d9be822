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
	"github.com/grapevine-epp/grapevine/internal/share"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
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

// dryRun decides for requests without serving them. It is safe for concurrent use.
type dryRun struct {
	Scheduler *picker.Scheduler
	Pool      *endpoint.Pool
	Share     *share.Index
	Knowledge *cacheKnowledge
	MaxBody   int // bytes
}

// explain handles POST /debug/explain. The body and headers are the request's. The query holds its
// path and, optionally, the subset that the proxy would allow. Nothing is tracked or recorded.
func (d *dryRun) explain(ctx context.Context, hr *http.Request) (any, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, hr.Body, int64(d.MaxBody)))
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
	for _, ep := range d.Pool.Snapshot().Endpoints {
		before[ep.ID] = d.Share.State(ep.ID)
	}
	out.Explanation, err = d.Scheduler.Explain(ctx, r)
	if err != nil {
		out.Refused = err.Error()
	}
	for _, c := range out.Candidates {
		if ep := d.Pool.Snapshot().Lookup(c.Endpoint); ep != nil {
			// The knowledge at match time counts, even if events have improved it since.
			state, _ := d.Knowledge.of(ep, min(before[ep.ID], d.Share.State(ep.ID)))
			out.Knowledge[c.Endpoint] = state.String()
			if age := d.Share.Age(ep.ID); age > 0 {
				out.AgeMS[c.Endpoint] = millis(age)
			}
		}
	}
	return out, nil
}
