// SPDX-License-Identifier: Apache-2.0

// Command standin-controller takes the place of tombolo-controller in the tests of the image.
package main

import "fmt"

var version = "unset"

func main() { fmt.Println("version", version) }
