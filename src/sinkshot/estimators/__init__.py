"""scikit-learn estimators: a transformer for the preprocessing chain, and classifiers that label a pool from a few
labels.

Every classifier applies a chain such as "PEMnE" to its rows, holds one prototype per class in the resulting space, and
treats unlabelled rows (y == -1) as the queries of a single task.
"""

from sinkshot.estimators._bms import UNKNOWN, BMSClassifier
from sinkshot.estimators._preprocessing import PEME
from sinkshot.estimators._prototypes import NearestClassMean, SoftKMeansClassifier
from sinkshot.estimators.few_shot import FewShotClassifier

__all__ = ["PEME", "UNKNOWN", "BMSClassifier", "FewShotClassifier", "NearestClassMean", "SoftKMeansClassifier"]
