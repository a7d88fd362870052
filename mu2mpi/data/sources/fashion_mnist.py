"""Data source Fashion-MNIST: 28 x 28 images of clothes in MNIST's format (Xiao, Rasul and Vollgraf, 2017)."""

from mu2mpi.core.registry import register
from mu2mpi.data.sources.mnist import Mnist, idx_files


@register
class FashionMnist(Mnist):
    """Fashion-MNIST data set, 60,000 training and 10,000 test images as uint8."""

    name, title = "fashion-mnist", "Fashion-MNIST"
    summary = "70,000 images of 28 x 28 pixels, downloaded by `mu2mpi data fashion-mnist`"
    array_files = idx_files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    )
    mirrors = (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    )
