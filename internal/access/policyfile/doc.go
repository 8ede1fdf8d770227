// SPDX-License-Identifier: Apache-2.0

// Package policyfile reads the files of the access policy, notices that they change and puts
// what is good into force; of a file with mistakes the last good content stays. It does not
// decide about a dial: that is authz.
package policyfile
