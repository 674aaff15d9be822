package extproc

import (
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
)

// beforeTimer is how long before the proxy's timer a request is refused that waits:
// at the timer itself a proxy that fails open would send it past the queue.
const beforeTimer = time.Second

// boundWait says how long the request may wait for capacity, and has the proxy told
// when it begins to.
func (st *stream) boundWait() {
	if st.modes.Request == BodyFullDuplex {
		return // the proxy has no timer there
	}
	o := &st.p.opts
	timer := o.MessageTimeout
	if o.MaxMessageTimeout > timer && !st.modes.observe {
		timer = o.MaxMessageTimeout
		st.request.Waits = func() {
			// A stream that is broken ends the wait by its context.
			_ = st.send(wire.Fixed(&extprocv3.ProcessingResponse{OverrideMessageTimeout: durationpb.New(timer)}))
		}
	}
	st.request.MaxWait = within(timer)
}

// within is how long a request waits that has to be refused before the proxy's timer ends.
func within(timer time.Duration) time.Duration { return max(timer-beforeTimer, timer/2) }

// LongestWait is how long requests may wait for capacity whose bodies the proxy keeps back,
// by its message_timeout (0: the default) and its max_message_timeout (0: there is none).
func LongestWait(timeout, most time.Duration) time.Duration {
	if timeout <= 0 {
		timeout = DefaultMessageTimeout
	}
	return within(max(timeout, most))
}
