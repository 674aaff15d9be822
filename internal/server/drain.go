package server

import (
	"context"
	"math"
	"time"
)

// beforeCut is how long before streams are cut the waiting requests are admitted.
const beforeCut = 2 * time.Second

// releaseBefore admits all waiting requests shortly before ctx ends.
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
