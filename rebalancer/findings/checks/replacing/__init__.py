"""Whether a pod that dies now would be replaced: `cannot-be-replaced`.

kept          the pods of a workload that are alike, by node
back_again    whether a replacement could go where the pod was, for many nodes at once
stuck         the pods whose replacement finds no node at all
remedy        what would have to change
check         the finding
since         since when it is so
"""
