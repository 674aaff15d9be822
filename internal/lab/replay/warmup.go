package replay

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// warmLeg marks the ids of warm-ups. mostWarmUps is the limit of concurrent warm-ups per replica,
// as in the daemon.
const (
	warmLeg     = 1 << 41
	mostWarmUps = 16
)

func (r *replica) takesWarmUp(*request.Request) bool { return r.warming < mostWarmUps }

// warmUp has a station compute the prompt of the request that is being placed.
func (r *replica) warmUp(w *picker.WarmUp, ended func(time.Time, int)) bool {
	s, j := r.sim, r.placing
	id := (uint64(j.number) + 1) | warmLeg
	station := r.station(w.Endpoint)
	err := s.submit(station, engine.Request{ID: id, Prompt: w.Work.Input, Output: 1, Blocks: slices.Clone(j.names[:len(j.blocks)])})
	if err != nil {
		return false
	}
	r.warming++
	s.warming[id] = warmUp{station, func(cached, status int) {
		delete(s.warming, id)
		r.warming--
		if status == 200 {
			s.warmUps, s.warmed = s.warmUps+1, s.warmed+w.Work.Input-cached
		}
		ended(s.clock(), status)
	}}
	return true
}

// warmUp is a running warm-up.
type warmUp struct {
	station int
	end     func(cached, status int)
}
