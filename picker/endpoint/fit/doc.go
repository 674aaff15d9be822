// Package fit learns from one sample after the other: the factors of a linear model with
// three inputs ([Linear]), faded means ([Mean]), how long answers are ([Answers]), and how
// many sequences an engine runs at once ([Slots]). It is plain
// arithmetic and knows no endpoint: no clock, no lock, no memory of samples.
package fit
