// Package corpus measures how many published configurations of other endpoint pickers work here.
//
//  1. [Shapes] reads shapes/*.txt: configurations written anew in the form of published ones. Each
//     has a source, the day of the source and the expected outcome.
//  2. [Shape.Check] loads a shape and classifies the outcome.
//  3. [Measure] counts the outcomes of a period, and [Report.Text] prints them.
//
// The outcomes are:
//   - loads: the file works here;
//   - replaced: the file is refused, and each error names a replacement and the lost behaviour;
//   - faulty: other pickers refuse the file too.
//
// Tests make decisions with the shapes that load, and compare the scores with recorded ones. The
// recorded scores follow the published formulas.
//
// A source has the day of its release or discussion. If that is unknown, it has the day of the
// newest copy.
package corpus
