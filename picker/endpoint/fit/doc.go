// Package fit contains online estimators: a linear model with three inputs ([Linear]), decayed
// means ([Mean]), answer lengths ([Answers]), and the sequence limit of an engine ([Slots]). It is
// plain arithmetic: it has no clock, holds no lock and keeps no samples.
package fit
