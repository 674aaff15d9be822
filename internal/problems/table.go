package problems

import "slices"

// Table lists every problem by code. The order is that of the runbook.
var Table = slices.Concat(replica, group, engines, knowledge, lists, traffic, host)

var replica = []Problem{
	{
		Code: Starting, Title: "replica is starting", Severity: Notice,
		Meaning: "The replica reads its configuration, endpoints and peers. It accepts no requests yet.",
		Effect:  "None while other replicas serve.",
		Action:  []string{"Wait for `--ready-timeout` (15 s).", "If the state lasts longer, act on the other problems in `grapevine status`."},
		Verify:  "`grapevine status --wait` exits with 0.",
	},
	{
		Code: Draining, Title: "replica is draining", Severity: Notice,
		Meaning: "The replica has received SIGTERM. It finishes its open requests and exits.",
		Effect:  "None: proxies send new requests to other replicas.",
		Action:  []string{"No action is required."},
		Verify:  "The process exits within `--drain` (20 s).",
	},
	{
		Code: Stalled, Title: "replica is stalled", Severity: Critical,
		Meaning: "One of the replica's own loops makes no progress. The replica reports that it is not ready.",
		Effect:  "Proxies stop sending requests to this replica. The other replicas carry its load.",
		Action: []string{
			"Run `kubectl port-forward POD 9090`, then save a [flight record](tasks/flight-record.md): `grapevine flight-record -o record.tar.gz`.",
			"Restart the replica, and report the saved file.",
		},
		Verify: "`curl http://127.0.0.1:9090/healthz` answers `ok`.",
		Alert:  &Alert{Name: "GrapevineReplicaStalled"},
	},
	{
		Code: LogLost, Title: "log lines are lost", Severity: Warning,
		Meaning: "Standard error is not read fast enough, so the replica dropped log lines in the last five minutes.",
		Effect:  "None on requests. The log has gaps.",
		Action:  []string{"Check the log collector of the node.", "Raise `--log-level` if the level is debug."},
		Verify:  "`grapevine_log_lines_dropped_total` stops growing.",
		Alert:   &Alert{Name: "GrapevineLogLinesLost", For: "5m", Expr: "rate(grapevine_log_lines_dropped_total{$NS}[5m]) > 0"},
	},
	{
		Code: NotScraped, Title: "metrics are not scraped", Severity: Critical, Source: Prometheus,
		Meaning: "Prometheus has no data from any replica.",
		Effect:  "None on requests, but no other alert can fire.",
		Action: []string{
			"Check that `curl http://POD:9090/metrics` answers.",
			"Check the labels of the ServiceMonitor and the network policy.",
		},
		Verify: "The query `grapevine_picker_endpoints` returns data.",
		Alert:  &Alert{Name: "GrapevineAbsent", For: "5m", Expr: "absent(grapevine_picker_endpoints{$NS})"},
	},
	{
		Code: Certificate, Title: "certificate expires soon", Severity: Warning,
		Meaning: "The certificate of the ext_proc and xDS listeners expires within a week, or has expired.",
		Effect:  "Proxies that verify it reject the replica once it has expired.",
		Action:  []string{"Renew the files of `--tls-cert` and `--tls-key`. The replica reloads them by itself."},
		Verify:  "`grapevine_certificate_expiry_timestamp_seconds` shows the new date.",
		Alert:   &Alert{Name: "GrapevineCertificateExpires", For: "10m"},
	},
	{
		Code: Tracing, Title: "spans are not exported", Severity: Notice,
		Meaning: "The last export of spans to the OpenTelemetry collector failed.",
		Effect:  "None on requests. The spans of failed exports are lost, and so are those for which the queue has no room.",
		Action: []string{
			"Read the error and the endpoint in the detail of this problem.",
			"Check `OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_EXPORTER_OTLP_PROTOCOL`: port 4317 is gRPC, port 4318 is HTTP.",
			"Check that the collector runs and that the network policy allows the connection.",
		},
		Verify: "`grapevine_tracing_spans_total{result=\"exported\"}` grows.",
	},
	{
		Code: Late, Title: "replica has too little processor time", Severity: Warning,
		Meaning: "The replica's own timers run late, and those of most other ready replicas do not. It reports that it is not ready.",
		Effect:  "None while other replicas serve: proxies send their requests there. Requests of a late replica would wait as long as its timers.",
		Action: []string{
			"Compare `container_cpu_cfs_throttled_periods_total` of the replicas. Raise or remove the CPU limit of the pod.",
			"Look for other programs that use the node's processors.",
		},
		Verify: "`grapevine_replica_lateness_seconds` is below 0.05. The replica returns after ten seconds, or later if it left repeatedly.",
		Alert:  &Alert{Name: "GrapevineReplicaLate", For: "1m"},
	},
}

var group = []Problem{
	{
		Code: Partitioned, Title: "members cannot be reached", Severity: Warning,
		Meaning: "This replica cannot reach some members of its group.",
		Effect:  "Both sides keep serving. Cache matches and load estimates are worse until they reach each other again.",
		Action: []string{
			"Run `grapevine members` on each replica to see which pairs are cut off.",
			"Check the network between them: TCP and UDP port 7946, and TCP port 7947.",
			"With NATS, check that each replica reaches the server.",
		},
		Verify: "`grapevine members` lists every member as `up`.",
		Alert:  &Alert{Name: "GrapevineReplicaPartitioned", For: "5m"},
	},
	{
		Code: Alone, Title: "no other member was found", Severity: Warning,
		Meaning: "The replica is configured to join a group and has found no other member.",
		Effect:  "The replica serves with its own load and its own event streams only.",
		Action: []string{
			"Check `--cluster-join` and that the headless Service resolves to the pods.",
			"Compare `--cluster-label` and the group's key on all replicas.",
		},
		Verify: "`grapevine members` lists the other members.",
		Alert:  &Alert{Name: "GrapevineReplicaAlone", For: "5m"},
	},
	{
		Code: Settings, Title: "members have different settings", Severity: Warning,
		Meaning: "The settings of two members differ, so they cannot share all of their state.",
		Effect:  "Requests are served. Replicas route the same prompt to different engines.",
		Action:  []string{"Make the setting equal on the members that the message names.", "Restart the replica with the wrong value."},
		Verify:  "`grapevine members` prints `joined` in its first line.",
		Alert:   &Alert{Name: "GrapevineGroupMisconfigured", For: "5m"},
	},
	{
		Code: Releases, Title: "group is degraded", Severity: Warning,
		Meaning: "The replicas do not share all of their state. During an upgrade, members of two releases may have different settings.",
		Effect:  "Requests are served. Cache matches may be worse.",
		Action:  []string{"Finish the upgrade.", "If no upgrade runs, `grapevine members` shows the member and the reason."},
		Verify:  "`grapevine members` prints `joined` in its first line.",
		Alert:   &Alert{Name: "GrapevineGroupDegraded", For: "15m"},
	},
	{
		Code: Remote, Title: "remote cluster is not reachable", Severity: Warning,
		Meaning: "A cluster of the federation sends no current state.",
		Effect:  "Requests stay in this cluster instead of going to the remote one.",
		Action:  []string{"Run `grapevine federation` for the reason.", "Check the network and the credentials between the clusters."},
		Verify:  "`grapevine federation` lists the cluster as `live`.",
		Alert:   &Alert{Name: "GrapevineRemoteClusterLost", For: "5m"},
	},
	{
		Code: Joining, Title: "replica joins its group", Severity: Notice,
		Meaning: "The replica exchanges state with the other members.",
		Effect:  "None.",
		Action:  []string{"No action is required."},
		Verify:  "`grapevine members` prints `joined` in its first line.",
	},
	{
		Code: Leaving, Title: "replica leaves its group", Severity: Notice,
		Meaning: "The replica announces its departure to the other members.",
		Effect:  "None.",
		Action:  []string{"No action is required."},
		Verify:  "The replica is gone from `grapevine members` of the others.",
	},
}

// engineBack is how to verify that an endpoint is in use again.
const engineBack = "`grapevine status` lists the endpoint as `healthy`. A new engine passes through `probing` and `returning` first."

var engines = []Problem{
	{
		Code: Refused, Title: "engine refuses connections", Severity: Warning,
		Meaning: "Connections to the engine are refused, so its process is not running or does not listen.",
		Effect:  "The endpoint gets no requests. The other engines carry its load.",
		Action:  []string{"Look at the engine's pod: it is restarting, out of memory or not started.", "Start the engine."},
		Verify:  engineBack,
		Details: "Causes in `status`: `refused`.",
		Alert:   &Alert{Name: "GrapevineEngineRefuses", For: "2m"},
	},
	{
		Code: Hung, Title: "engine hangs", Severity: Warning,
		Meaning: "The engine accepts connections but sends no answers and makes no progress.",
		Effect:  "The endpoint gets only probes. Requests that were in flight there are late or fail.",
		Action:  []string{"Look at the engine's log and at its GPU.", "Restart the engine if it does not recover."},
		Verify:  engineBack,
		Details: "Causes in `status`: `silent`, `stalled` and `probe`.",
		Alert:   &Alert{Name: "GrapevineEngineHangs", For: "2m"},
	},
	{
		Code: Failing, Title: "engine fails requests", Severity: Warning,
		Meaning: "The engine answers with errors, breaks connections, or ends answers in the middle.",
		Effect:  "The endpoint gets only probes. Earlier requests there have failed or were retried.",
		Action:  []string{"Look at the engine's log for the error.", "Restart the engine, or take it out of the pool."},
		Verify:  engineBack,
		Details: "Causes in `status`: `failed`, `broken`, `cut` and `halted`.",
		Alert:   &Alert{Name: "GrapevineEngineFails", For: "2m"},
	},
	{
		Code: Declining, Title: "engine rejects requests that its peers accept", Severity: Warning,
		Meaning: "The engine answers 3xx or 4xx where other engines answer the same client with 200.",
		Effect:  "The endpoint gets only probes. Earlier requests there were rejected.",
		Action:  []string{"Compare API key, model name, adapters and `--max-model-len` of the engine with its peers."},
		Verify:  engineBack,
		Details: "Causes in `status`: `declined`.",
		Alert:   &Alert{Name: "GrapevineEngineDeclines", For: "2m"},
	},
	{
		Code: Invalid, Title: "engine sends invalid answers", Severity: Warning,
		Meaning: "The engine's answers are empty, aborted, incomplete, of repeated text, of another model, or much shorter than its peers'.",
		Effect:  "The endpoint gets only probes. Earlier requests there got unusable answers.",
		Action:  []string{"Look at the engine's log.", "Check which model the engine serves: `curl http://ENGINE/v1/models`."},
		Verify:  engineBack,
		Details: "Causes in `status`: `invalid` and `short`.",
		Alert:   &Alert{Name: "GrapevineEngineInvalid", For: "2m"},
	},
	{
		Code: Slow, Title: "engine is slow", Severity: Warning,
		Meaning: "The engine is much slower than predicted, or than its peers.",
		Effect:  "The endpoint gets fewer requests. Requests there take longer.",
		Action:  []string{"Look for another process on the GPU, for thermal throttling and for a different engine configuration."},
		Verify:  engineBack,
		Details: "Causes in `status`: `late` and `slow`.",
		Alert:   &Alert{Name: "GrapevineEngineSlow", For: "5m"},
	},
	{
		Code: PoolUnhealthy, Title: "most engines are unhealthy", Severity: Critical,
		Meaning: "Many engines of a model are out or look unhealthy at the same time. Those that still answer stay in use.",
		Effect:  "Users see errors or long waits.",
		Action: []string{
			"Look for a common cause: network, model, API key, or a rollout of the engines.",
			"Undo the latest change of the engines.",
			"`grapevine status` lists the evidence for each endpoint.",
		},
		Verify: "The problem is gone from `grapevine status`, and `grapevine_user_errors_total` stops growing.",
		Alert:  &Alert{Name: "GrapevineMostEnginesUnhealthy", For: "1m"},
	},
	{
		Code: Suspect, Title: "engine is being checked", Severity: Notice,
		Meaning: "Some requests failed or were late at the engine.",
		Effect:  "The endpoint gets a small share of requests while it is checked.",
		Action:  []string{"No action is required: the state becomes `healthy` or `out` within seconds."},
		Verify:  engineBack,
	},
	{
		Code: Returning, Title: "engine returns to service", Severity: Notice,
		Meaning: "The engine was out. Its share of requests grows again.",
		Effect:  "None.",
		Action:  []string{"No action is required."},
		Verify:  engineBack,
	},
	{
		Code: Unreached, Title: "engine was never reached", Severity: Warning,
		Meaning: "No replica has received anything from the endpoint yet.",
		Effect:  "Requests may be sent to an address where no engine answers.",
		Action:  []string{"Check address and port of the endpoint.", "Check the network policy between picker and engine."},
		Verify:  engineBack,
		Alert:   &Alert{Name: "GrapevineEngineUnreached", For: "5m"},
	},
	{
		Code: ModelFails, Title: "a model or client fails at one engine", Severity: Warning,
		Meaning: "Requests for the model, of the client or of the kind fail at this engine, while others are answered.",
		Effect:  "These requests go to other engines.",
		Action: []string{
			"Check that the adapter or model is loaded at the engine.",
			"For a client: compare the engine's keys and access rules with those of its peers.",
		},
		Verify: "The lines `fails models` and `fails clients` of `grapevine status` are gone.",
		Alert:  &Alert{Name: "GrapevineModelFails", For: "5m"},
	},
	{
		Code: Full, Title: "engine rejected a request for lack of capacity", Severity: Notice,
		Meaning: "The engine answered that it is full. The endpoint is avoided for a short time.",
		Effect:  "Requests go to other engines.",
		Action:  []string{"If it happens often, [add engines](tasks/size.md) or use [flow control](flow-control.md)."},
		Verify:  "The line `full` of `grapevine status` ends within seconds.",
	},
	{
		Code: NoGauges, Title: "engine's metrics cannot be read", Severity: Warning,
		Meaning: "The engine's metrics page fails or has an unknown format.",
		Effect:  "Load estimates use requests only. Placement is less even.",
		Action:  []string{"Open the engine's metrics page: `curl http://ENGINE/metrics`.", "Check scheme, path and TLS of `metrics-data-source` in the configuration."},
		Verify:  "The line `no gauges` is gone from `grapevine status`.",
		Alert:   &Alert{Name: "GrapevineEngineMetricsUnread", For: "5m"},
	},
}

var knowledge = []Problem{
	{
		Code: Approximate, Title: "cached blocks are estimated", Severity: Notice,
		Meaning: "The replica has no usable KV-cache events from the engine. It estimates the cached blocks from earlier requests.",
		Effect:  "Some requests miss a cache that another engine has. First tokens take longer than necessary.",
		Action: []string{
			"Enable KV-cache events on the engine ([laptop tutorial](get-started/laptop.md#1-start-the-engines-with-kv-cache-events)).",
			"If events are enabled, `grapevine status` names the missing part.",
		},
		Verify: "`grapevine status` lists the endpoint as `exact`.",
	},
	{
		Code: ModelFiles, Title: "tokenizer of a model is missing", Severity: Warning,
		Meaning: "The replica has no tokenizer or template for a model, so it matches the model's prompts approximately.",
		Effect:  "First tokens of the model take longer than necessary.",
		Action:  []string{"`grapevine status` shows the state of the model and the remedy. Act on the state as in the table.", "The replica retries by itself. SIGHUP retries at once."},
		Verify:  "`grapevine status` lists the model's files as `ready`.",
		Details: "| state | do |\n|---|---|\n" +
			"| `gated` | accept the model's terms with the token's account, and set `HF_TOKEN` (chart: `modelFiles.tokenSecret`) |\n" +
			"| `offline` | mount a Hugging Face cache that has the model (chart: `modelFiles.huggingFaceHome`), in one replica at least |\n" +
			"| `not_found` | name the model's folder (`--model NAME=FOLDER`; with several pools `models` of the [pools file](tasks/several-pools.md)), or mount the engine's folder at the same path |\n" +
			"| `refused` | the engine's model name is no repository name, or a file is too large: name the folder |\n" +
			"| `failed` | check the network from the replica to the Hub or mirror, and that `--model-cache` is writable |",
		Alert: &Alert{Name: "GrapevineModelApproximate", For: "10m"},
	},
	{
		Code: CatchingUp, Title: "events are being replayed", Severity: Notice,
		Meaning: "The replica loads cache events that it missed.",
		Effect:  "Matches at the endpoint may be shorter for some seconds.",
		Action:  []string{"If the state returns again and again, check the network to the engine's event ports."},
		Verify:  "`grapevine status` lists the endpoint as `exact`.",
	},
	{
		Code: Partial, Title: "older cache events are missing", Severity: Notice,
		Meaning: "Events that are older than the engine's replay buffer were missed.",
		Effect:  "Matches may be shorter than possible, never longer.",
		Action:  []string{"No action is required: the state ends as the engine's cache turns over."},
		Verify:  "`grapevine status` lists the endpoint as `exact`.",
	},
	{
		Code: Mismatched, Title: "engine reuses other tokens than predicted", Severity: Warning,
		Meaning: "Events arrive, but the engine's cache hits differ from the predictions. The prompt is rendered differently here and there.",
		Effect:  "Users notice longer first tokens.",
		Action: []string{
			"Run `grapevine check --live --admin HOST:9090`. It renders three chats here and at the engine, and shows the first byte that differs.",
			"If the chat template differs, use the engine's model folder for `--model`.",
			"If the rendering is equal, compare the event topic and port with the engine's.",
		},
		Verify: "The state returns to `exact` after about 16 correct comparisons.",
		Alert:  &Alert{Name: "GrapevineCacheMismatch", For: "10m"},
	},
	{
		Code: Unreadable, Title: "engine's events cannot be read", Severity: Warning,
		Meaning: "Event messages arrive and none can be decoded. `status` names their form.",
		Effect:  "The cached blocks are estimated from earlier requests. First tokens take longer than necessary.",
		Action:  []string{"Upgrade the engine, or remove `events` from the endpoint."},
		Verify:  "`grapevine status` lists the endpoint as `exact`.",
		Alert:   &Alert{Name: "GrapevineEventsUnreadable", For: "5m"},
	},
	{
		Code: UnknownModel, Title: "requests name an unknown model", Severity: Notice,
		Meaning: "Requests named a model for which the replica has no tokenizer.",
		Effect:  "Their prompts are matched approximately.",
		Action:  []string{"Name the model with `--model-alias` or `--model`, if an engine serves it."},
		Verify:  "The count in `grapevine status` stops growing.",
	},
	{
		Code: Modelless, Title: "requests name no model", Severity: Notice,
		Meaning: "Requests named no model in body, form or query, in a pool of several base models. The paths follow.",
		Effect:  "Any engine may get them. Engines reject requests for models that they do not serve.",
		Action: []string{
			"Name the model in the query: `/v1/realtime?model=NAME`. The first message of a WebSocket comes after the choice of its engine.",
			"Otherwise route the path to a pool of one model.",
		},
		Verify: "The count in `grapevine status` stops growing.",
	},
}

var lists = []Problem{
	{
		Code: NoEndpoint, Title: "no endpoint", Severity: Critical,
		Meaning: "The replica's endpoint list is empty.",
		Effect:  "Every request gets 503.",
		Action: []string{
			"Compare the pool's selector with the labels of ready pods: `kubectl get pods --selector …`.",
			"Without Kubernetes, check the endpoints file: `grapevine check FILE`.",
		},
		Verify: "`grapevine status` lists the endpoints.",
		Alert:  &Alert{Name: "GrapevineNoEndpoint", For: "2m"},
	},
	{
		Code: StaleList, Title: "endpoint list cannot be updated", Severity: Warning,
		Meaning: "The source of endpoints cannot be read. The replica uses the last list.",
		Effect:  "New engines get no requests, and removed ones may still get some.",
		Action: []string{
			"`grapevine status` names the cause. A missing right is named with its rule: add it to the Role.",
			"If the API server is away, restore it.",
			"If the endpoints file has errors, correct them: `grapevine check FILE`.",
		},
		Verify: "`grapevine status` shows a recent read of the list.",
		Alert:  &Alert{Name: "GrapevineEndpointsUnread", For: "5m"},
	},
	{
		Code: Config, Title: "configuration was rejected", Severity: Warning,
		Meaning: "The current configuration file has errors. The previous configuration stays in use.",
		Effect:  "None yet. A restarted replica will not start with this file.",
		Action:  []string{"Run `grapevine check FILE`. It prints line and column of each error.", "Correct the file. The replica reads it again by itself."},
		Verify:  "`grapevine_config_last_reload_successful` is 1.",
		Alert:   &Alert{Name: "GrapevineConfigRefused"},
	},
	{
		Code: BadEntry, Title: "an object was left out", Severity: Warning,
		Meaning: "An endpoint, objective or rewrite is invalid, and the list was read without it. Or a host name does not resolve.",
		Effect:  "The object has no effect. Its endpoint gets no requests.",
		Action:  []string{"Correct the object that `grapevine status` names."},
		Verify:  "The line is gone from `grapevine status`.",
		Alert:   &Alert{Name: "GrapevineObjectLeftOut", For: "5m"},
	},
	{
		Code: NotFollowed, Title: "proxy does not follow decisions", Severity: Critical,
		Meaning: "Answers come from other endpoints than the chosen ones.",
		Effect:  "Cache matches and load balancing have no effect.",
		Action:  []string{"Compare the proxy's configuration with `grapevine envoy-config`.", "Check the cluster type and the destination header or metadata ([proxies](proxies.md))."},
		Verify:  "The line `answers` of `grapevine status` counts answers from the chosen endpoint.",
		Alert:   &Alert{Name: "GrapevineDecisionsIgnored", For: "5m"},
	},
	{
		Code: Rights, Title: "a right is missing", Severity: Notice,
		Meaning: "The API server refuses a request that the list of endpoints does not depend on.",
		Effect:  "Depends on the rule. Without `watch`, objects are listed every few seconds. Without `list`, objectives and rewrites are not in use. Without `create` or `patch`, events or conditions are not written.",
		Action:  []string{"Add the rule that the problem names to the Role, or leave it out on purpose ([rights](kubernetes.md#rights))."},
		Verify:  "The line is gone from `grapevine status`.",
	},
	{
		Code: Plugin, Title: "a plugin fails", Severity: Warning,
		Meaning: "Calls of a WebAssembly plugin failed in the last minute, or calls pause because five in a row failed.",
		Effect:  "Decisions without its result: each endpoint has the score or the verdict of `onError`. No request fails because of it, unless a filter drops all endpoints.",
		Action: []string{
			"Read the reason that the problem names. `steps`: the module needs more than `maxInstructions`. `trap`, `refused`: its own error. `result`: scores or verdicts are missing. `start`: a new instance does not start. `busy`: all instances were in use.",
			"Try the module on a saved fleet: `grapevine explain --config FILE --fleet FLEET` ([WebAssembly plugins](tasks/wasm.md)).",
			"Replace the file by one that works and send SIGHUP, or remove the plugin from the configuration.",
		},
		Verify: "`grapevine_plugin_failures_total` does not increase.",
		Alert:  &Alert{Name: "GrapevinePluginFails", For: "5m"},
	},
}

var traffic = []Problem{
	{
		Code: UserErrors, Title: "users get errors", Severity: Critical, Source: Prometheus,
		Meaning: "More than 1% of the requests to a model fail for users: status 500 and above, a full engine's 429 or 503, or no answer.",
		Effect:  "Users see errors.",
		Action: []string{
			"Run `grapevine status` and act on the problems at its top.",
			"If requests wait, the pool is full: [size a deployment](tasks/size.md).",
			"Look at single requests: [slow request](tasks/slow-request.md), [wrong placement](tasks/wrong-placement.md).",
		},
		Verify: "The ratio of `grapevine_user_errors_total` to `grapevine_user_requests_total` is below 1%.",
		Alert: &Alert{
			Name: "GrapevineUserErrors", For: "5m",
			Expr: "sum by (model) (rate(grapevine_user_errors_total{$NS}[5m])) / sum by (model) (rate(grapevine_user_requests_total{$NS}[5m])) > 0.01",
		},
	},
	{
		Code: Saturated, Title: "requests wait for capacity", Severity: Warning,
		Meaning: "The pool is full, and requests wait in the queue.",
		Effect:  "First tokens take longer. Requests that wait too long are rejected.",
		Action:  []string{"Run `grapevine flow` to see which tenants wait.", "[Add engines](tasks/size.md), or limit tenants with [priorities](tasks/priorities.md)."},
		Verify:  "`grapevine_flow_waiting_requests` is 0.",
		Alert:   &Alert{Name: "GrapevineSaturated", For: "10m"},
	},
	{
		Code: UnknownRole, Title: "role label is unknown", Severity: Warning,
		Meaning: "The role label of an endpoint is empty or misspelt.",
		Effect:  "The endpoint serves whole requests instead of one stage.",
		Action:  []string{"Correct the label `llm-d.ai/role` ([roles](tasks/prefill-decode.md))."},
		Verify:  "The problem is gone from `grapevine status`.",
		Alert:   &Alert{Name: "GrapevineUnknownRole", For: "5m"},
	},
	{
		Code: NoDecode, Title: "no endpoint decodes", Severity: Critical,
		Meaning: "All endpoints are labelled for prefill or encoding.",
		Effect:  "Every request gets 503.",
		Action:  []string{"Start decode engines, or correct the label `llm-d.ai/role`."},
		Verify:  "`grapevine status` is ready.",
		Alert:   &Alert{Name: "GrapevineNoDecode", For: "2m"},
	},
	{
		Code: NoPrefill, Title: "no endpoint prefills for others", Severity: Warning,
		Meaning: "Endpoints are labelled for decode, and none is labelled for prefill.",
		Effect:  "No request is split: decode endpoints compute all prompts.",
		Action: []string{
			"Compare the labels of the prefill pods with the pool's selector: `kubectl get pods -L llm-d.ai/role`.",
			"Check that the prefill pods run and are ready.",
		},
		Verify: "The line `prefill/decode` of `grapevine status` counts prefill endpoints.",
		Alert:  &Alert{Name: "GrapevineNoPrefill", For: "10m"},
	},
	{
		Code: PairDiffers, Title: "engines of a pair differ", Severity: Warning,
		Meaning: "Prefill and decode endpoints of one model run different versions or block sizes.",
		Effect:  "vLLM refuses KV transfers between versions. Decode computes these prompts, until the pair is turned off.",
		Action: []string{
			"During a rolling update, wait for its end.",
			"Otherwise, give both deployments one image and one `--block-size`.",
		},
		Verify: "`grapevine status` lists the problem no more.",
		Alert:  &Alert{Name: "GrapevinePairDiffers", For: "30m"},
	},
	{
		Code: PairNothing, Title: "prefill returns no KV transfer", Severity: Warning,
		Meaning: "The prefill engine answers without a KV transfer, so its pair with this decode endpoint is off.",
		Effect:  "Decode endpoints compute the prompts. First tokens are later, and running answers stall for longer.",
		Action: []string{
			"Check `--kv-transfer-config` of the prefill engine: its connector, and the role `kv_producer` or `kv_both`.",
			"Check `--kv-connector` of the sidecar next to the decode engine.",
		},
		Verify: "The pair is `on` in `grapevine status`. One decision in 64 tries it.",
		Alert:  &Alert{Name: "GrapevinePrefillReturnsNoTransfer", For: "10m"},
	},
	{
		Code: PairFails, Title: "KV transfers fail", Severity: Warning,
		Meaning: "The decode engine fails with the KV transfers of a prefill engine, or gets them too late, so the pair is off.",
		Effect:  "Decode endpoints compute the prompts. First tokens are later, and running answers stall for longer.",
		Action: []string{
			"From the decode pod, connect to the side channel of the prefill engine, port 5600. A network policy may block it.",
			"Check that `VLLM_NIXL_SIDE_CHANNEL_HOST` of the prefill engine is an address that decode reaches.",
			"Compare version, model name and cache format of both engines.",
			"If transfers are late, compare `--lease` of the sidecar with `kv_lease_duration` of the engine.",
			"Read the reason of each request in the sidecar's log.",
		},
		Verify: "The pair is `on` in `grapevine status`. One decision in 64 tries it.",
		Alert:  &Alert{Name: "GrapevineTransfersFail", For: "10m"},
	},
	{
		Code: PairSlow, Title: "splitting is slower", Severity: Warning,
		Meaning: "First tokens of split requests are later than those of whole requests would be, so the pair is off.",
		Effect:  "Decode endpoints compute the prompts of this pair.",
		Action: []string{
			"Look at the gain of each pair in `grapevine status`.",
			"If one pair is slow, check the network between the two, and the load of its prefill endpoint.",
			"If all are slow, prompts are too short or prefill endpoints too few: `grapevine-lab replay --suggest-roles` computes a number.",
			"Replace a threshold by the `predicted-pd-decider`.",
		},
		Verify: "The pair is `on` in `grapevine status`. One decision in 64 tries it.",
		Alert:  &Alert{Name: "GrapevineSplitIsSlower", For: "30m"},
	},
}

var host = []Problem{
	{
		Code: ClockSkew, Title: "clocks differ", Severity: Warning, Source: Doctor,
		Meaning: "The clock of the replica differs from the clock of this host.",
		Effect:  "Times in logs and traces do not match. Tokens and certificates may be rejected.",
		Action:  []string{"Enable NTP on both hosts: `timedatectl status`."},
		Verify:  "Run `grapevine doctor` again.",
	},
	{
		Code: FileLimit, Title: "limit of open files is low", Severity: Warning, Source: Doctor,
		Meaning: "A process may open fewer files and connections than a busy replica needs.",
		Effect:  "Under load, new connections are refused.",
		Action:  []string{"Raise the limit: `ulimit -n 65536`, `LimitNOFILE=` of the systemd unit, or the container runtime's default."},
		Verify:  "Run `grapevine doctor` again.",
	},
	{
		Code: Unresolved, Title: "host name does not resolve", Severity: Warning, Source: Doctor,
		Meaning: "The name of an engine or a replica has no address.",
		Effect:  "The engine gets no requests, or the replica does not find its group.",
		Action:  []string{"Check the name, and the resolver of this host: `getent hosts NAME`."},
		Verify:  "Run `grapevine doctor` again.",
	},
	{
		Code: PortInUse, Title: "address cannot be listened on", Severity: Warning, Source: Doctor,
		Meaning: "Another process uses the port, or the address is not of this host.",
		Effect:  "The replica does not start.",
		Action:  []string{"Find the process: `ss -ltnp`.", "Stop it, or choose another port with `--listen`, `--health` or `--admin`."},
		Verify:  "Run `grapevine doctor` again.",
	},
	{
		Code: BadCertificate, Title: "certificate cannot be used", Severity: Warning, Source: Doctor,
		Meaning: "The certificate or its key is missing, does not match, or is not valid for the next week.",
		Effect:  "The replica does not start, or proxies reject it.",
		Action:  []string{"Renew the files of `--tls-cert` and `--tls-key`."},
		Verify:  "Run `grapevine doctor` again.",
	},
	{
		Code: EngineUnreachable, Title: "engine cannot be reached from here", Severity: Warning, Source: Doctor,
		Meaning: "The engine accepts no HTTP connection from this host.",
		Effect:  "A replica here sends it no requests.",
		Action:  []string{"Check that the engine runs, and its address and port.", "Check the network policy between this host and the engine."},
		Verify:  "Run `grapevine doctor` again.",
	},
	{
		Code: StreamUnreachable, Title: "event port cannot be reached from here", Severity: Warning, Source: Doctor,
		Meaning: "The port of the engine's KV-cache events accepts no connection from this host.",
		Effect:  "The cached blocks of the engine are estimated.",
		Action:  []string{"Check the port in the engine's `--kv-events-config`, and that it does not bind to 127.0.0.1.", "Open the port in the network policy."},
		Verify:  "Run `grapevine doctor` again.",
	},
	{
		Code: PeerUnreachable, Title: "replica cannot be reached from here", Severity: Warning, Source: Doctor,
		Meaning: "The stream port of another replica accepts no connection from this host.",
		Effect:  "The replicas do not share their state.",
		Action:  []string{"Open TCP and UDP port 7946, and TCP port 7947, between the replicas."},
		Verify:  "Run `grapevine doctor` again.",
	},
	{
		Code: EnvoyConfig, Title: "Envoy configuration has no working picker", Severity: Warning, Source: Doctor,
		Meaning: "The file has no ext_proc filter, or its picker accepts no connection.",
		Effect:  "Envoy answers 500, or balances without the picker.",
		Action:  []string{"Compare the file with the output of `grapevine envoy-config`.", "Check the address of the picker's cluster."},
		Verify:  "Run `grapevine doctor` again.",
	},
	{
		Code: Versions, Title: "versions differ", Severity: Notice, Source: Doctor,
		Meaning: "This program, the replica and its peers are not of one release.",
		Effect:  "None during an upgrade.",
		Action:  []string{"Finish the upgrade ([order](tasks/upgrade.md))."},
		Verify:  "Run `grapevine doctor` again.",
	},
	{
		Code: NoReplica, Title: "no replica answers", Severity: Warning, Source: Doctor,
		Meaning: "No replica answers at the address of `--admin`.",
		Effect:  "None, if the address is wrong. Otherwise the replica serves nothing.",
		Action:  []string{"Check the address, and that the admin listener is reachable: it binds to 127.0.0.1 by default."},
		Verify:  "Run `grapevine doctor` again.",
	},
}
