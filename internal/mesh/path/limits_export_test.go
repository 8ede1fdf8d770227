// SPDX-License-Identifier: Apache-2.0

package path

// Bounds for the tests of the package.
const (
	PathKeep   = pathKeep
	PathBetter = pathBetter
	PathAbsent = pathAbsent
	PathTurn   = pathTurn
	PathRelays = pathRelays
	PathRetry  = pathRetry
	PathSpare  = pathSpare
)
