package dashboards

import "fmt"

// Table lists the dashboards, the first one to open first.
var Table = []Dashboard{overview, class, engine, replica, group}

// one is a panel with one query.
func one(title string, unit Unit, help, expr, legend string) Panel {
	return Panel{Title: title, Help: help, Unit: unit, Query: []Query{{expr, legend}}}
}

// quantiles is a panel with quantiles of a histogram. by are labels to keep, each with a comma.
func quantiles(title, help, metric, matchers, by, legend string, qs ...float64) Panel {
	p := Panel{Title: title, Help: help, Unit: Seconds}
	for _, q := range qs {
		p.Query = append(p.Query, Query{
			fmt.Sprintf("histogram_quantile(%g, sum by (%sle) (rate(%s_bucket{$NS%s}[5m])))", q, by, metric, matchers),
			fmt.Sprintf("%g%% %s", 100*q, legend),
		})
	}
	return p
}

// failed is a panel with the share of failed requests over the windows of the alerts.
func failed(title, help, matchers string) Panel {
	p := Panel{Title: title, Help: help, Unit: Percent}
	for _, w := range []string{"5m", "1h", "6h", "3d"} {
		p.Query = append(p.Query, Query{
			fmt.Sprintf("sum by (model) (rate(grapevine_user_errors_total{$NS%[1]s}[%[2]s])) / sum by (model) (rate(grapevine_user_requests_total{$NS%[1]s}[%[2]s]))", matchers, w),
			"{{model}}, " + w,
		})
	}
	return p
}

var overview = Dashboard{
	File: "overview", Title: "Grapevine: overview",
	Rows: []Row{
		{Panels: []Panel{{
			Title: "Problems by code", Table: true, Help: "grapevine help CODE and docs/runbook.md have the action for each code.",
			Query: []Query{{Expr: "max by (code) (grapevine_problems{$NS}) > 0"}},
		}}},
		{"What users see", []Panel{
			one("Requests per second, by model", PerSec, "All requests of users, placed or not.", "sum by (model) (rate(grapevine_user_requests_total{$NS}[5m]))", "{{model}}"),
			failed("Share of failed requests, by model", "GrapevineUserErrors fires on one hour or six, GrapevineErrorBudget on days.", ""),
			quantiles("Time to the first token, by model", "Compare it with the objective of GrapevineFirstTokensLate.", "grapevine_user_first_token_seconds", "", "model, ", "{{model}}", .5, .95),
			one("Refusals per second, by reason", PerSec, "Requests that no endpoint got.", "sum by (reason) (rate(grapevine_picker_refusals_total{$NS}[5m]))", "{{reason}}"),
		}},
		{"Engines", []Panel{
			one("Engines by health", Plain, "The dashboard of an engine has the cause.", "max by (state) (sum by (pod, state) (grapevine_health_state{$NS}))", "{{state}}"),
			one("Engines by knowledge of their caches", Plain, "exact: the cached blocks are known from events.", "max by (state) (sum by (pod, state) (grapevine_knowledge_state{$NS}))", "{{state}}"),
			{Title: "Endpoints", Help: "Wanted: enough for the load, at the target of --size-target.", Query: []Query{
				{"max(grapevine_picker_endpoints{$NS})", "endpoints"}, {"max(grapevine_picker_endpoints_down{$NS})", "down"},
				{"max by (model) (grapevine_picker_endpoints_wanted{$NS})", "wanted, {{model}}"},
			}},
			one("How full engines are, by model", Percent, "100%: five requests wait at each engine, or 80% of its KV memory is in use.", "max by (model) (grapevine_model_saturation{$NS})", "{{model}}"),
			one("Share of prompt tokens found in caches", Percent, "As engines report it. It falls after restarts of engines, and when knowledge is lost.",
				"sum(rate(grapevine_picker_reported_cached_tokens_total{$NS}[5m])) / sum(rate(grapevine_picker_reported_prompt_tokens_total{$NS}[5m]))", "cached"),
			one("Requests that wait for capacity", Plain, "The dashboard of a request class shows who waits.", "sum(grapevine_flow_waiting_requests{$NS})", "waiting"),
		}},
		{"Sources", []Panel{
			one("Age of the endpoint list", Seconds, "It grows while the API server or the file cannot be read.", "time() - grapevine_discovery_last_success_timestamp_seconds{$NS}", "{{pod}}"),
			one("Configuration in use: 1, rejected: 0", Plain, "A rejected file is not in use; the previous one is.", "min by (pod) (grapevine_config_last_reload_successful{$NS})", "{{pod}}"),
			one("Share of requests that leave the zone, by reason", Percent, "gain: endpoints of the zone were predicted to be worse.",
				"sum by (reason) (rate(grapevine_picker_zone_crossings_total{$NS}[5m])) / on () group_left sum(rate(grapevine_picker_decisions_total{$NS}[5m]))", "{{reason}}"),
			one("Plugin failures per second", Plain, "Calls of WebAssembly plugins without a valid result.", "sum by (plugin) (rate(grapevine_plugin_failures_total{$NS}[5m]))", "{{plugin}}"),
		}},
	},
}

var class = Dashboard{
	File: "class", Title: "Grapevine: request class",
	Variables: []Variable{{Name: "model", From: "grapevine_user_requests_total", Multi: true}, {Name: "priority", From: "grapevine_flow_waiting_requests", Multi: true}},
	Rows: []Row{
		{"What users of the model see", []Panel{
			one("Requests per second", PerSec, "", `sum by (model) (rate(grapevine_user_requests_total{$NS, model=~"$model"}[5m]))`, "{{model}}"),
			failed("Share of failed requests", "Both windows of an alert have to exceed its limit.", `, model=~"$model"`),
			one("Errors by cause", PerSec, "engine: status 500 and above. full: a full engine's 429 or 503. refused: no endpoint or capacity.",
				`sum by (cause) (rate(grapevine_user_errors_total{$NS, model=~"$model"}[5m]))`, "{{cause}}"),
			one("Answers that ended early, per second", PerSec, "The engine failed or the client disconnected.", `sum by (model) (rate(grapevine_user_unfinished_total{$NS, model=~"$model"}[5m]))`, "{{model}}"),
			quantiles("Time to the first token", "From the decision, without the wait for capacity.", "grapevine_user_first_token_seconds", `, model=~"$model"`, "model, ", "{{model}}", .5, .9, .95, .99),
			one("Answers by status class", PerSec, "none: the proxy does not send answers to the picker.", `sum by (class) (rate(grapevine_requests_total{$NS, model=~"$model"}[5m]))`, "{{class}}"),
		}},
		{"Capacity", []Panel{
			one("Waiting requests, by priority", Plain, "grapevine flow lists the tenants.", `sum by (model, priority) (grapevine_flow_waiting_requests{$NS, model=~"$model", priority=~"$priority"})`, "{{model}}, {{priority}}"),
			quantiles("Wait for capacity, by priority", "Of requests that were queued.", "grapevine_flow_wait_seconds", `, priority=~"$priority"`, "priority, ", "{{priority}}", .5, .95),
			one("Outcomes of requests at the queue, per second", PerSec, "", `sum by (outcome) (rate(grapevine_flow_outcomes_total{$NS, model=~"$model"}[5m]))`, "{{outcome}}"),
			one("Work that waits", Seconds, "All replicas together.", `max by (model) (grapevine_flow_backlog_seconds{$NS, model=~"$model"})`, "{{model}}"),
			{Title: "Permits of the pool", Help: "In flight: held by requests of all replicas.", Query: []Query{
				{`max by (model) (grapevine_flow_places{$NS, model=~"$model"})`, "all, {{model}}"}, {`max by (model) (grapevine_flow_places_in_flight{$NS, model=~"$model"})`, "in flight, {{model}}"},
			}},
			one("How full its engines are", Percent, "", `max by (model) (grapevine_model_saturation{$NS, model=~"$model"})`, "{{model}}"),
		}},
	},
}

var engine = Dashboard{
	File: "engine", Title: "Grapevine: engine",
	Variables: []Variable{{Name: "endpoint", From: "grapevine_health_state"}},
	Rows: []Row{
		{"Health", []Panel{
			one("State and cause", Plain, "grapevine status has the evidence.", `max by (state, cause) (grapevine_health_state{$NS, endpoint="$endpoint"})`, "{{state}} {{cause}}"),
			one("Share of decisions in which it may be chosen", Percent, "Below 100% after it was out.", `min by (endpoint) (grapevine_health_share{$NS, endpoint="$endpoint"})`, "share"),
			{Title: "Requests that speak for it and against it, per second", Unit: PerSec, Help: "Against it: by cause.", Query: []Query{
				{`sum(rate(grapevine_health_requests_good_total{$NS, endpoint="$endpoint"}[5m]))`, "good"},
				{`sum by (cause) (rate(grapevine_health_requests_bad_total{$NS, endpoint="$endpoint"}[5m]))`, "{{cause}}"},
			}},
			{Title: "Avoided", Help: "Full: the engine rejected a request for lack of capacity. Models: requests that fail here and not elsewhere.", Query: []Query{
				{`max(grapevine_health_full{$NS, endpoint="$endpoint"})`, "full"}, {`max(grapevine_health_models_avoided{$NS, endpoint="$endpoint"})`, "models"},
			}},
		}},
		{"Requests", []Panel{
			one("Ended requests per second, by model and status class", PerSec, "", `sum by (model, class) (rate(grapevine_requests_total{$NS, endpoint="$endpoint"}[5m]))`, "{{model}} {{class}}"),
			quantiles("Time to the first token", "Compare it with the other engines.", "grapevine_request_first_token_seconds", `, endpoint="$endpoint"`, "", "", .5, .95),
			quantiles("Time to the end of the answer", "", "grapevine_request_seconds", `, endpoint="$endpoint"`, "", "", .5, .95),
			one("Requests counted here, not at the engine", Plain, "Far from 0 for long: other clients use the engine, or its metrics are wrong.", `max(grapevine_share_in_flight_drift{$NS, endpoint="$endpoint"})`, "difference"),
		}},
		{"Knowledge of its cache", []Panel{
			one("State", Plain, "", `max by (state) (grapevine_knowledge_state{$NS, endpoint="$endpoint"})`, "{{state}}"),
			one("Age of events when they were applied", Seconds, "", `max by (pod) (grapevine_knowledge_lag_seconds{$NS, endpoint="$endpoint"})`, "{{pod}}"),
			one("Batches that are missing", Plain, "They are replayed if the engine still has them.", `max by (pod) (grapevine_knowledge_behind_batches{$NS, endpoint="$endpoint"})`, "{{pod}}"),
			one("Blocks in the index", Plain, "Its cached blocks. It falls to 0 after a restart of the engine.", `max by (pod) (grapevine_index_endpoint_blocks{$NS, endpoint="$endpoint"})`, "{{pod}}"),
			one("Predictions compared with reports, per second", Plain, "over: the engine had fewer cached tokens than predicted.", `sum by (outcome) (rate(grapevine_audit_comparisons_total{$NS, endpoint="$endpoint"}[5m]))`, "{{outcome}}"),
			one("Audited state, by model", Plain, "mismatched: see GV4005.", `max by (model, state) (grapevine_audit_state{$NS, endpoint="$endpoint"})`, "{{model}} {{state}}"),
		}},
	},
}

var replica = Dashboard{
	File: "replica", Title: "Grapevine: replica",
	Variables: []Variable{{Name: "pod", From: "grapevine_picker_endpoints", Multi: true}},
	Rows: []Row{
		{"Decisions", []Panel{
			one("Decisions per second", PerSec, "", `sum by (pod) (rate(grapevine_picker_decisions_total{$NS, pod=~"$pod"}[5m]))`, "{{pod}}"),
			quantiles("Time of a decision", "Without the wait for capacity.", "grapevine_picker_decision_seconds", `, pod=~"$pod"`, "", "", .5, .99),
			one("Requests in flight", Plain, "", `sum by (pod) (grapevine_picker_inflight_requests{$NS, pod=~"$pod"})`, "{{pod}}"),
			one("Streams of proxies", Plain, "One per request.", `sum by (pod) (grapevine_extproc_streams{$NS, pod=~"$pod"})`, "{{pod}}"),
			quantiles("Observed over predicted time to the first token", "1 is a correct prediction.", "grapevine_picker_ttft_error_ratio", `, pod=~"$pod"`, "", "", .1, .5, .9),
			quantiles("Time to the first token", "Of this replica's requests.", "grapevine_picker_ttft_seconds", `, pod=~"$pod"`, "", "", .5, .95),
		}},
		{"Process", []Panel{
			one("Memory needed, as a share of the limit", Percent, "GrapevineMemoryRunsOut fires at 75%.", `max by (pod) (grapevine_memory_needed_bytes{$NS, pod=~"$pod"}) / on (pod) max by (pod) (grapevine_memory_budget_bytes{$NS, pod=~"$pod", use="process"})`, "{{pod}}"),
			one("Memory in use, by use", Bytes, "It shows what grows.", `max by (use) (grapevine_memory_budget_used_bytes{$NS, pod=~"$pod"})`, "{{use}}"),
			one("Delay of the replica's own timers", Seconds, "Above 0.05 s it has too little processor time.", `max by (pod) (grapevine_replica_lateness_seconds{$NS, pod=~"$pod"})`, "{{pod}}"),
			one("Time until its certificate expires", Seconds, "", `min by (pod) (grapevine_certificate_expiry_timestamp_seconds{$NS, pod=~"$pod"} - time())`, "{{pod}}"),
			one("Lost log lines per second", Plain, "", `sum by (pod) (rate(grapevine_log_lines_dropped_total{$NS, pod=~"$pod"}[5m]))`, "{{pod}}"),
			one("Spans per second, by result", Plain, "Of sampled requests.", `sum by (result) (rate(grapevine_tracing_spans_total{$NS, pod=~"$pod"}[5m]))`, "{{result}}"),
		}},
		{"Engines' metrics", []Panel{
			one("Age of the oldest sample in use", Seconds, "", `max by (pod) (grapevine_scrape_oldest_sample_seconds{$NS, pod=~"$pod"})`, "{{pod}}"),
			one("Endpoints by the state of their metrics", Plain, "", `max by (state) (grapevine_scrape_endpoints{$NS, pod=~"$pod"})`, "{{state}}"),
		}},
	},
}

var group = Dashboard{
	File: "group", Title: "Grapevine: group",
	Rows: []Row{
		{"Members", []Panel{
			one("Members that each replica sees", Plain, "All replicas should see the same number.", "max by (pod) (grapevine_cluster_members{$NS})", "{{pod}}"),
			one("Healthy: 1, by state", Plain, "GV2001 to GV2004 name the reason.", "min by (pod, state) (grapevine_cluster_healthy{$NS})", "{{pod}} {{state}}"),
			one("Caught up: 1, serves without: 0.5", Plain, "", "min by (pod) (grapevine_cluster_settled{$NS})", "{{pod}}"),
			one("Peers that cannot be reached", Plain, "", "sum by (pod) (1 - grapevine_cluster_peer_up{$NS})", "{{pod}}"),
			one("Round trip to the slowest peer", Seconds, "", "max by (pod) (grapevine_cluster_peer_rtt_seconds{$NS})", "{{pod}}"),
			one("Largest clock difference between replicas", Seconds, "GrapevineClocksDiffer fires at a second.", "max by (pod) (abs(grapevine_cluster_peer_clock_ahead_seconds{$NS}))", "{{pod}}"),
		}},
		{"Shared state", []Panel{
			one("Sequence numbers behind the furthest peer", Plain, "Near 0 except while a replica joins.", "max by (pod, state) (grapevine_cluster_lag_batches{$NS})", "{{pod}} {{state}}"),
			one("Sources whose content differs at a peer", Plain, "Repaired within seconds. More than 0 for long is a defect.", "max by (pod, state) (grapevine_cluster_peer_digests_differ{$NS})", "{{pod}} {{state}}"),
			one("Sources without a reader", Plain, "Event streams that no replica reads.", "max by (state) (grapevine_cluster_sources_unread{$NS})", "{{state}}"),
			one("Repairs per second, by kind", Plain, "", "sum by (what) (rate(grapevine_cluster_repairs_total{$NS}[5m]))", "{{what}}"),
			one("Lost data per second, by kind", Plain, "", "sum by (what) (rate(grapevine_cluster_lost_total{$NS}[5m]))", "{{what}}"),
			one("Event streams by source", Plain, "direct: read by this replica. shared: from the group.", "sum by (mode) (grapevine_share_index_sources{$NS})", "{{mode}}"),
		}},
		{"Traffic between replicas", []Panel{
			one("Bytes per second, by state and direction", Bytes, "", "sum by (state, direction) (rate(grapevine_cluster_peer_bytes_total{$NS}[5m]))", "{{state}} {{direction}}"),
			one("Bytes per second to and from other zones", Bytes, "", "sum by (direction) (rate(grapevine_cluster_zone_bytes_total{$NS}[5m]))", "{{direction}}"),
			one("Dropped frames per second, by pod", Plain, "A queue to a peer was full or closed.", "sum by (pod) (rate(grapevine_cluster_queue_dropped_frames_total{$NS}[5m]))", "{{pod}}"),
			one("Refused frames and connections per second, by reason", Plain, "key: a member with another key.", "sum by (reason) (rate(grapevine_cluster_refused_total{$NS}[5m]))", "{{reason}}"),
		}},
	},
}
