package cluster

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/core"
)

// Member and the other types are the words of the state machine, for those who
// use a Node. Package core documents them.
type (
	Member     = core.Member
	Position   = core.Position
	Digest     = core.Digest
	Delta      = core.Delta
	Role       = core.Role
	Verdict    = core.Verdict
	Share      = core.Share
	Phase      = core.Phase
	Knowledge  = core.Knowledge
	SourceView = core.SourceView
	LogStore   = core.LogStore
	Dump       = core.Dump
	Stage      = core.Stage
	GaugeSink  = core.GaugeSink
	FeedSink   = core.FeedSink
	LogOptions = core.LogOptions
)

// Values of the types above.
const (
	RoleNone    = core.RoleNone
	RoleStandby = core.RoleStandby
	RoleReader  = core.RoleReader

	Applied = core.Applied
	Already = core.Already
	Gap     = core.Gap
	Stale   = core.Stale
	Unknown = core.Unknown
	Broken  = core.Broken

	ShareAuto        = core.ShareAuto
	ShareMesh        = core.ShareMesh
	SharePartitioned = core.SharePartitioned

	Settling = core.Settling
	Settled  = core.Settled
	Degraded = core.Degraded

	Nothing     = core.Nothing
	Approximate = core.Approximate
	CatchingUp  = core.CatchingUp
	Exact       = core.Exact
)

// NewMember returns the identity of this process: an ID that no other process
// has, under a name that stays (a host or pod name), so that ownership does
// not move because a replica was restarted.
func NewMember(name, version string) Member {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return Member{
		ID:   name + "-" + hex.EncodeToString(b[:4]),
		Name: name, Version: version,
		Boot: uint64(time.Now().UnixNano()) ^ binary.LittleEndian.Uint64(b[:])<<1 | 1,
	}
}

// ErrUnsure is what a LogStore returns when a delta builds on other content.
var ErrUnsure = core.ErrUnsure
