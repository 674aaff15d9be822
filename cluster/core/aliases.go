package core

import (
	"github.com/grapevine-epp/grapevine/cluster/group"
	"github.com/grapevine-epp/grapevine/cluster/logs"
	"github.com/grapevine-epp/grapevine/cluster/wire"
)

// Member and the other types are the words of the packages that a Core is made of.
type (
	Member   = group.Member
	Options  = group.Options
	Envelope = group.Envelope
	Class    = group.Class
	Share    = group.Share
	Phase    = group.Phase
	Refusal  = group.Refusal
	Stats    = group.Stats
	Held     = group.Held
	Traffic  = group.Traffic
	Job      = group.Job

	Position    = logs.Position
	Digest      = logs.Digest
	Delta       = logs.Delta
	Role        = logs.Role
	Verdict     = logs.Verdict
	Knowledge   = logs.Knowledge
	SourceView  = logs.SourceView
	PeerLogView = logs.PeerLogView
	Log         = logs.Log
	LogStore    = logs.LogStore
	LogOptions  = logs.LogOptions
	Dump        = logs.Dump
	Stage       = logs.Stage
)

// ErrUnsure is what a LogStore returns when a delta builds on other content.
var ErrUnsure = logs.ErrUnsure

// Values of the types above.
const (
	Live = group.Live
	Bulk = group.Bulk

	ShareAuto        = group.ShareAuto
	ShareMesh        = group.ShareMesh
	SharePartitioned = group.SharePartitioned

	Settling = group.Settling
	Settled  = group.Settled
	Degraded = group.Degraded

	NumRefusals = group.NumRefusals

	RoleNone    = logs.RoleNone
	RoleStandby = logs.RoleStandby
	RoleReader  = logs.RoleReader

	Applied = logs.Applied
	Already = logs.Already
	Gap     = logs.Gap
	Stale   = logs.Stale
	Unknown = logs.Unknown
	Broken  = logs.Broken

	Nothing     = logs.Nothing
	Approximate = logs.Approximate
	CatchingUp  = logs.CatchingUp
	Exact       = logs.Exact

	MaxFrame = wire.MaxFrame
	MaxName  = wire.MaxName

	never = group.Never
)

// ParseShare reads the spelling of a Share.
func ParseShare(s string) (Share, bool) { return group.ParseShare(s) }

// Owners ranks members for a source; see logs.Owners.
func Owners(members []Member, source string) []Member { return logs.Owners(members, source) }

// Furthest merges two positions; see wire.Furthest.
func Furthest(p, q Position) Position { return wire.Furthest(p, q) }
