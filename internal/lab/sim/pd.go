package sim

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/core"
)

// PDOptions make an engine serve prefill/decode requests like vLLM with its NixlConnector. Zero
// fields mean the default.
type PDOptions struct {
	Lease     time.Duration // that unread blocks are kept; default 30 s
	Handshake time.Duration // until a peer that does not answer is given up; default 5 s
	// Recompute makes the engine compute a prompt whose blocks did not arrive; by default the
	// request fails.
	Recompute bool
	// BytesPerToken and BytesPerSecond make the time of a transfer, behind Latency.
	BytesPerToken  float64 // default 131,072
	BytesPerSecond float64 // default 10¹⁰
	Latency        time.Duration
}

func (o PDOptions) withDefaults() *PDOptions {
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	if o.Handshake == 0 {
		o.Handshake = 5 * time.Second
	}
	if o.BytesPerToken == 0 {
		o.BytesPerToken = 131072
	}
	if o.BytesPerSecond == 0 {
		o.BytesPerSecond = 1e10
	}
	return &o
}

// moves returns the transfer time of the given number of tokens.
func (o *PDOptions) moves(tokens int, speed float64) time.Duration {
	if math.IsInf(speed, 1) {
		return 0
	}
	seconds := o.Latency.Seconds() + float64(tokens)*o.BytesPerToken/o.BytesPerSecond
	return time.Duration(seconds / speed * float64(time.Second))
}

// kvTransfer is the member kv_transfer_params, as vLLM's NixlConnector writes and reads
// it.
type kvTransfer struct {
	DoRemotePrefill bool            `json:"do_remote_prefill"`
	DoRemoteDecode  bool            `json:"do_remote_decode"`
	BlockIDs        json.RawMessage `json:"remote_block_ids"`
	EngineID        *string         `json:"remote_engine_id"`
	RequestID       *string         `json:"remote_request_id,omitempty"`
	Host            *string         `json:"remote_host"`
	Port            *int            `json:"remote_port"`
	TPSize          int             `json:"tp_size,omitempty"`
	Tokens          int             `json:"remote_num_tokens,omitempty"`
	Mode            string          `json:"transfer_mode,omitempty"`
	Cached          *int            `json:"remote_prefill_cached_tokens,omitempty"`
}

func (h *kvTransfer) prefills() bool { return h != nil && h.DoRemoteDecode && !h.DoRemotePrefill }
func (h *kvTransfer) pulls() bool    { return h != nil && h.DoRemotePrefill }

// offer returns the KV transfer of a prompt that was computed here.
func (c *call) offer() *kvTransfer {
	s := c.seqs[0]
	blocks := c.core.LeasedBlocks(s.job.Lease)
	if blocks == nil {
		return nil
	}
	ids, _ := json.Marshal([][]int32{blocks}) // numbers always encode
	host, portText, _ := net.SplitHostPort(c.w.st.addr)
	port, _ := strconv.Atoi(portText)
	_, cached, _, _ := s.job.State()
	return &kvTransfer{
		DoRemotePrefill: true, BlockIDs: ids, EngineID: &c.w.st.id, RequestID: &s.job.Lease, Host: &host, Port: &port,
		TPSize: 1, Tokens: len(s.prompt.tokens), Mode: "pull", Cached: &cached,
	}
}

// keepFor has the request's blocks kept when it has ended.
func (c *call) keepFor() {
	for i, s := range c.seqs {
		s.job.Req.Hold = true
		s.job.Lease = fmt.Sprintf("%s-%d-%08x", c.head.ID, i, leaseNumber.Add(1))
		s.job.Stamp = core.StampOf(s.prompt.tokens)
	}
}
