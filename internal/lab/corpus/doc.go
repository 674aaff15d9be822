// Package corpus measures how many published configurations of other endpoint pickers work here.
//
//  1. [Shapes] reads shapes/*.txt: configurations written anew in the form of published ones. Each
//     has a source, the day of the source and the expected outcome.
//  2. [Shape.Check] loads a shape and classifies the outcome.
//  3. [Measure] counts the outcomes of a period, and [Report.Text] prints them.
//
// Outcomes are loads, replaced (each problem has a hint with a replacement and what is lost), and
// faulty (other pickers refuse the file too). Shapes that load also make decisions in the package's
// tests: the recorded scores follow other pickers' formulas, so a file that loads decides the same.
//
// The day of a source is the day of its release or discussion; for files of unknown age, the day of
// the newest copy that was read.
package corpus
