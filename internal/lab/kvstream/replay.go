package kvstream

import (
	"encoding/binary"

	"github.com/grapevine-epp/grapevine/events/zmtp"
)

// replay answers one request on the ROUTER: an empty frame and the first sequence number. It
// ignores other input, as vLLM does.
func (p *Publisher) replay(conn *zmtp.RouterConn, frames [][]byte) {
	if len(frames) != 2 || len(frames[0]) != 0 || len(frames[1]) != 8 {
		return
	}
	batches, ok := p.since(binary.BigEndian.Uint64(frames[1]))
	if !ok {
		return
	}
	for _, b := range batches {
		if p.reply(conn, []byte(p.opt.Topic), b.seq, b.payload) != nil {
			return
		}
	}
	_ = p.reply(conn, nil, endMarker, nil) // on error the connection is closed as well
}

func (p *Publisher) reply(conn *zmtp.RouterConn, topic []byte, seq uint64, payload []byte) error {
	number := seqFrame(seq)
	if p.opt.ShortReply {
		return conn.Send(nil, number[:], payload)
	}
	return conn.Send(nil, topic, number[:], payload)
}

// since returns the ring's batches from start on, minus batches that faults drop. ok is false if
// replay is off.
func (p *Publisher) since(start uint64) (batches []delayed, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faults.ReplayOff {
		return nil, false
	}
	p.stats.Replays++
	oldest := p.seq - uint64(p.kept)
	for seq := max(start, oldest); seq < p.seq; seq++ {
		if p.hits(p.faults.ReplayHoles) {
			continue
		}
		batches = append(batches, delayed{seq: seq, payload: p.ring[seq%uint64(len(p.ring))]})
	}
	p.stats.Replayed += uint64(len(batches))
	return batches, true
}
