package server

import (
	"context"
	"math"
	"time"
)

// beforeCut is how long before streams are cut off the requests that still wait are let go.
const beforeCut = 2 * time.Second

// releaseBefore lets all go that waits, shortly before ctx ends.
func (s *Server) releaseBefore(ctx context.Context) *time.Timer {
	left := time.Duration(math.MaxInt64)
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end)
	}
	return time.AfterFunc(left-min(beforeCut, left/4), func() {
		if s.stopQueue != nil {
			s.stopQueue()
		}
	})
}
