// Package dashboards is the source of the Grafana dashboards that the chart installs: an overview, and
// one each for a request class, an engine, a replica and the group.
//
// go test ./internal/dashboards -rewrite writes them. Tests check that each query has the syntax of
// PromQL and selects metrics and labels of docs/metrics.md, and that the dashboards show every metric
// that an alert or the verification of a problem reads.
package dashboards
