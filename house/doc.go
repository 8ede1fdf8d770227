// SPDX-License-Identifier: Apache-2.0

// Package house is the law of the house as tests. A Law reads the repository as
// text and syntax trees and reports breaches; TestHouse applies every law to
// this tree, and the tests beside each law prove on a small bad tree that it
// can fail. It does not type-check and it is not part of the product: nothing
// imports it.
//
// To live with a rule for a reason, add a row to Exceptions; a row that excuses
// nothing is itself a breach.
package house
