package server

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
)

// beforeCut is how long before streams are cut the waiting requests are admitted.
const beforeCut = 2 * time.Second

// flushTime is how long the export of the last spans may take, and flushLeast how long if no time is
// left.
const (
	flushTime  = 5 * time.Second
	flushLeast = 500 * time.Millisecond
)

// closeTracer exports the last spans before ctx ends.
func (s *Server) closeTracer(ctx context.Context) {
	left := flushTime
	if end, ok := ctx.Deadline(); ok {
		left = min(max(time.Until(end), flushLeast), flushTime)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	defer cancel()
	s.tracer.Close(ctx)
}

// releaseBefore ends the queue shortly before ctx ends. Requests about which their proxies then ask another
// replica keep their turn there, the others are admitted.
func (s *Server) releaseBefore(ctx context.Context) *time.Timer {
	left := time.Duration(math.MaxInt64)
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end)
	}
	return time.AfterFunc(left-min(beforeCut, left/4), func() {
		if s.stopQueue == nil {
			return
		}
		if s.othersServe() {
			s.gate.MoveAway()
		}
		s.stopQueue()
	})
}

// othersServe reports whether another replica is up that does not leave.
func (s *Server) othersServe() bool {
	return s.node != nil && s.grouped && slices.ContainsFunc(s.node.Status().Peers, func(p cluster.Peer) bool { return p.State == "up" && !p.Leaving })
}

// lastReports is how long a leaving replica waits for its last reports to be sent, in addition to the
// longest round trip to another replica.
const lastReports = 100 * time.Millisecond

// endReports stops the reports to other replicas. They continue until the last request has ended: others
// count this replica's requests as it reports them. A leaving replica first lets the last ones arrive.
func (s *Server) endReports(leaving bool) {
	if s.stopReports == nil {
		return
	}
	if leaving {
		wait := time.Duration(0)
		for _, p := range s.node.Status().Peers {
			wait = max(wait, p.RTT)
		}
		time.Sleep(min(lastReports+wait, beforeCut))
	}
	s.stopReports()
}
