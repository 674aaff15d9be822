package problems

// causes are the problems of engines that are out, by the cause in status and log.
var causes = map[string]Code{
	"refused": Refused,
	"silent":  Hung, "stalled": Hung, "probe": Hung,
	"failed": Failing, "broken": Failing, "cut": Failing, "halted": Failing,
	"declined": Declining, "invalid": Invalid, "short": Invalid,
	"late": Slow, "slow": Slow,
}

// OfCause returns the problem of an engine that is out for a cause, "" for an unknown cause.
func OfCause(cause string) Code { return causes[cause] }

// logged are the messages that report a change of one subject, and the problem which the change
// begins or ends. The log has their code, so that one search finds all lines about a problem.
var logged = map[string]Code{
	"log lines lost: standard error accepted no bytes":       LogLost,
	"certificate of the ext_proc listener ends":              Certificate,
	"replica is leaving service: it has too little CPU time": Late,
	"member unreachable":                                     Partitioned,
	"member reachable":                                       Partitioned,
	"nats is unreachable, retrying":                          Partitioned,
	"connection to nats lost":                                Partitioned,
	"group keys refused, keeping the current ones":           Alone,
	"cluster is not reachable":                               Remote,
	"cluster is reachable":                                   Remote,
	"federation connection to nats lost":                     Remote,
	"most endpoints are unhealthy":                           PoolUnhealthy,
	"most endpoints are healthy again":                       PoolUnhealthy,
	"endpoint fails some models, clients or kinds of request, which go to other endpoints": ModelFails,
	"an endpoint no longer fails single models, clients or kinds of request":               ModelFails,
	"engine metrics cannot be read, load is estimated without them":                        NoGauges,
	"engine metrics read again": NoGauges,
	"model files not found, prompts of the model are matched approximately":                       ModelFiles,
	"model files are unreadable, prompts of the model are matched approximately":                  ModelFiles,
	"vocabulary cannot be decoded, prompts of the model are matched approximately":                ModelFiles,
	"prompts of this model are matched approximately":                                             ModelFiles,
	"predicted cache hits do not match the engine's answers":                                      Mismatched,
	"engine renders chats differently from this replica":                                          Mismatched,
	"requests name a model without a configured tokenizer: its prompts are matched approximately": UnknownModel,
	"request without a model in a pool of several models: any engine may receive it":              Modelless,
	"event stream lost":                                            StreamLost,
	"event stream connected":                                       StreamLost,
	"endpoints file rejected, keeping the current list":            StaleList,
	"the source of endpoints cannot be read, another list is used": StaleList,
	"configuration rejected, keeping the previous one":             Config,
	"reload failed, keeping the current configuration":             Config,
	"host name does not resolve":                                   BadEntry,
	"responses come from endpoints that the picker did not choose": NotFollowed,
}

// OfLog returns the problem that a log line with this message and cause begins or ends, "" for
// others.
func OfLog(message, cause string) Code {
	if message == "endpoint health changed" {
		return causes[cause]
	}
	return logged[message]
}
