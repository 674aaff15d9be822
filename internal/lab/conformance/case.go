package conformance

import (
	"context"
	"slices"
)

// SuiteVersion identifies the set of cases. It changes whenever a case is added, removed or judged
// differently, so that reports of one version can be compared.
const SuiteVersion = "2.0.0"

// Level is the requirement level of a case.
type Level string

// Levels.
const (
	Must   Level = "MUST"   // protocol 1.0, or an API that it requires, demands it
	Should Level = "SHOULD" // a picker can conform without it, but proxies or clients suffer
	May    Level = "MAY"    // optional, or only in an older text
)

// Levels lists all levels, strictest first.
var Levels = []Level{Must, Should, May}

// Outcome is the result of a case.
type Outcome string

// Outcomes.
const (
	Pass          Outcome = "pass"
	Fail          Outcome = "fail"
	NotApplicable Outcome = "not-applicable" // the picker or the run lacks what the case is about
	Inconclusive  Outcome = "inconclusive"   // the suite could not observe the behavior
)

// Outcomes lists all outcomes.
var Outcomes = []Outcome{Pass, Fail, NotApplicable, Inconclusive}

// Case is one requirement with the exchange that tests it.
type Case struct {
	ID          string
	Level       Level
	Source      string // document and section of the requirement
	Requirement string // sentence of the source
	Test        string // messages that the suite sends, and the expected answer
	run         run
}

// run performs the exchange. It returns the observed behavior, and an error if the requirement is
// not met or could not be tested.
type run func(context.Context, *session) (seen string, err error)

// Sources of requirements.
const (
	protocol      = "Endpoint Picker Protocol 1.0.0"
	olderProtocol = "Endpoint Picker Protocol 0.3.0"
	extProc       = "Envoy API v3, external_processor.proto"
	bodyModes     = "Envoy API v3, processing_mode.proto"
	extProcFilter = "Envoy API v3, ext_proc.proto"
	grpcHealth    = "gRPC Health Checking Protocol"
	practice      = "Observed practice"
)

// Cases returns all cases in the order of a run.
func Cases() []Case {
	return slices.Concat(destinationCases(), subsetCases(), errorCases(), bodyCases(), responseCases(), streamCases(), healthCases(), hostileCases())
}
