package extproc

import (
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
)

// beforeTimer is how long before the proxy's timeout a waiting request is rejected. At the timeout
// itself, a proxy that fails open would forward it past the queue.
const beforeTimer = time.Second

// boundWait limits the request's wait for capacity, and extends the proxy's timeout when the wait
// begins.
func (st *stream) boundWait() {
	if st.modes.Request == BodyFullDuplex {
		return // no timeout in full duplex
	}
	o := &st.p.opts
	timer := o.MessageTimeout
	if o.MaxMessageTimeout > timer && !st.modes.observe {
		timer = o.MaxMessageTimeout
		st.request.Waits = func() {
			// If the stream is broken, its context ends the wait.
			_ = st.send(wire.Fixed(&extprocv3.ProcessingResponse{OverrideMessageTimeout: durationpb.New(timer)}))
		}
	}
	st.request.MaxWait = within(timer)
}

// within returns the maximum wait of a request that must be rejected before the proxy's timeout.
func within(timer time.Duration) time.Duration { return max(timer-beforeTimer, timer/2) }

// LongestWait returns the maximum wait for capacity of requests whose bodies the proxy holds, given
// its message_timeout (0: the default) and max_message_timeout (0: none).
func LongestWait(timeout, most time.Duration) time.Duration {
	if timeout <= 0 {
		timeout = DefaultMessageTimeout
	}
	return within(max(timeout, most))
}
