// SPDX-License-Identifier: Apache-2.0

// Package house has the rules for this repository ("laws") as tests. A Law reads
// the repository as text and syntax trees and reports breaches; TestHouse applies
// every law to this tree, and other tests prove on small bad trees that each law can
// fail. It does not type-check, and is not part of the product: nothing imports it.
//
// To break a law for a reason, add a row to Exceptions; a row that excuses nothing is
// itself a breach.
package house
